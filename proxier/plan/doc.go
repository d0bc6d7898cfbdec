// Package plan computes the desired state of every Service port on this node: the endpoints for internal and for external
// traffic, and what happens without endpoints. A plan is a pure function of the tracked state and the node. It contains
// no rules and no kernel state, so every backend encodes the same decisions.
//
//  1. Update takes the changes of one sync and plans only the Service ports that changed.
//  2. Ports returns all planned Service ports in a stable order: the oldest Service first, then by name. If two Services
//     claim the same address and port, the oldest wins, on every node and after every restart. In kube-proxy, the map
//     order decides (k/k#69599).
//
// Not modelled: node addresses, masquerading and marks, which are the backend's settings.
package plan
