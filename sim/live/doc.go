// Package live follows a real cluster, so that a simulated cluster can repeat its changes.
//
//  1. Follow lists and watches Services, EndpointSlices and Nodes with client-go's reflectors. It uses no other verbs.
//  2. Each object is stripped to what a Service proxy reads (sim/capture). The first lists make one snapshot.
//     Everything after it is a Change with its arrival time, in the order of arrival.
//  3. A watch that ends is resumed where it ended. If the server has forgotten that version (410), Follow lists again
//     and compares: the differences are changes. The Summary counts these relists, and the time without events.
//  4. An Encoder writes snapshot and changes as lines of JSON, a Decoder reads them. So they get into a network
//     namespace without a link out, where they are played into a api.Cluster.
//
// Not modelled: intermediate states of an object between the end of a watch and the list after it (only the last state
// is known), and the order of changes of different kinds. The API does not report that order: it is the order of
// arrival.
package live
