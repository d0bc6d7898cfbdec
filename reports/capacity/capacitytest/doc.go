// Package capacitytest has a cost model for tests of its users, without a kernel or a measurement: model.Fit of records
// that follow known cost formulas.
//
//  1. laws.go has the formulas of four subjects, close to measurements of them on a small machine.
//  2. records.go makes the records that a calibration of such subjects would have.
//  3. Model fits the records. Answer answers a question from the model. Both return the same at every call.
package capacitytest
