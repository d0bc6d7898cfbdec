// Package plan decides what every Service port does on this node: which endpoints its internal and its external
// traffic may go to, and what happens when there are none. A plan is a pure function of the tracked state and the
// node; it knows neither rules nor the kernel, so every backend encodes the same decisions.
//
//  1. Update takes the changes of one sync and plans only the Service ports that they touch.
//  2. Ports gives all planned Service ports in a stable order: the oldest Service first, then by name. Where two
//     Services claim the same address and port, the oldest therefore wins, on every node and after every restart
//     (map order decides in kube-proxy, k/k#69599).
//
// Not modelled: node addresses, masquerading and marks, which are the backend's settings.
package plan
