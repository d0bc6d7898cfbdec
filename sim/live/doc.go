// Package live follows a real cluster, so that a simulated one can do what it does.
//
//  1. Follow lists and watches Services, EndpointSlices and Nodes with client-go's reflectors. It asks for nothing but
//     list and watch.
//  2. What arrives is stripped to what a Service proxy reads (sim/capture). The first lists make one snapshot; everything
//     after it is a Change with the time at which it arrived, in the order in which it arrived.
//  3. A watch that ends is taken up where it ended. When the server has forgotten that place (410), the new list is
//     compared with what is known, and the differences are changes; the Summary says how often that was, and how long
//     nothing was heard.
//  4. An Encoder writes snapshot and changes as lines of JSON, a Decoder reads them: that is how they get into a namespace
//     without a network, to be played there into a sim.Cluster.
//
// Not modelled: what happened to an object between the end of a watch and a list after it (only its last state is known),
// and the order of changes of different kinds, which the API does not tell: it is the order of arrival.
package live
