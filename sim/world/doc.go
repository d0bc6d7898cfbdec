// Package world makes clusters that look like real ones, and plans how they change.
//
//  1. Generate makes the objects of a scenario's shape: Services, EndpointSlices packed as the EndpointSlice controller packs
//     them, and Nodes. See docs/design/simulated-cluster.md.
//  2. A World (NewWorld, WorldOf) holds a cluster, and plans traces of changes: Create, Churn, Rollout, Scale, NodeLoss.
//
// Same shape and seed, same objects and traces. Clusters with unusual objects, as an API server accepts them, come from package
// sim/random.
package world
