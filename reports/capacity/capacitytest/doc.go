// Package capacitytest has a cost model for tests of what answers from one, without a kernel or a measurement: model.Fit
// of records that follow known laws.
//
//  1. laws.go has the laws of four subjects, near what was measured of them on a small machine.
//  2. records.go makes the records that a calibration of such subjects would have.
//  3. Model fits them, Answer asks a question of the model. Both are the same at every call.
package capacitytest
