package manifests

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"synclab/internal/inet"
	"synclab/sim"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// podMaker is a workload: an object that makes pods from a template.
type podMaker struct {
	*metav1.ObjectMeta
	kind     string // "deployment"
	object   metav1.Object
	replicas int32 // of a DaemonSet: the number of nodes
	selector *metav1.LabelSelector
	template *corev1.PodTemplateSpec
	first    int32  // ordinal of a StatefulSet's first pod
	service  string // a StatefulSet's headless Service
}

func newWorkload(kind string, object metav1.Object, replicas *int32, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) *podMaker {
	accessor := object.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	return &podMaker{
		ObjectMeta: accessor, kind: kind, object: object,
		replicas: ptr.Deref(replicas, 1), selector: selector, template: template,
	}
}

func statefulWorkload(set *appsv1.StatefulSet) *podMaker {
	w := newWorkload("statefulset", set, set.Spec.Replicas, set.Spec.Selector, &set.Spec.Template)
	w.service = set.Spec.ServiceName
	if set.Spec.Ordinals != nil {
		w.first = set.Spec.Ordinals.Start
	}
	return w
}

// controllerWorkload reads a ReplicationController, which may omit template and selector. The default of the selector
// is the template's labels.
func controllerWorkload(rc *corev1.ReplicationController) *podMaker {
	template := rc.Spec.Template
	if template == nil {
		template = &corev1.PodTemplateSpec{}
	}
	selector := &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
	if len(rc.Spec.Selector) == 0 {
		selector.MatchLabels = template.Labels
	}
	return newWorkload("replicationcontroller", rc, rc.Spec.Replicas, selector, template)
}

// check lists what the API server would refuse, and what would keep the pods out of their Services.
func (w *podMaker) check() field.ErrorList {
	errs := sim.CheckMeta(w.ObjectMeta, validation.IsDNS1123Subdomain)
	path := field.NewPath("spec")
	if w.replicas < 0 {
		errs = append(errs, field.Invalid(path.Child("replicas"), w.replicas, "must not be negative"))
	}
	if w.first < 0 {
		errs = append(errs, field.Invalid(path.Child("ordinals", "start"), w.first, "must not be negative"))
	}
	selector, err := metav1.LabelSelectorAsSelector(w.selector)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(path.Child("selector"), w.selector, err.Error()))
	case w.selector == nil || selector.Empty():
		errs = append(errs, field.Required(path.Child("selector"), "must select the template's labels"))
	case !selector.Matches(labels.Set(w.template.Labels)):
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), labels.Set(w.template.Labels).String(),
			"do not match the selector, "+selector.String()))
	}
	return append(errs, checkPodSpec(&w.template.Spec, path.Child("template", "spec"))...)
}

// checkPodSpec lists the faults of a pod's spec. It also sets the default protocol of container ports.
func checkPodSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.NodeName != "" {
		for _, text := range validation.IsDNS1123Subdomain(spec.NodeName) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), spec.NodeName, text))
		}
	}
	check := func(containers []corev1.Container, path *field.Path) {
		for i := range containers {
			for j := range containers[i].Ports {
				port, at := &containers[i].Ports[j], path.Index(i).Child("ports").Index(j)
				if port.Protocol == "" {
					port.Protocol = corev1.ProtocolTCP
				}
				errs = append(errs, sim.CheckPortNumber(at.Child("containerPort"), port.ContainerPort)...)
				errs = append(errs, sim.OneOf(at.Child("protocol"), port.Protocol, sim.Protocols)...)
			}
		}
	}
	check(spec.InitContainers, path.Child("initContainers"))
	check(spec.Containers, path.Child("containers"))
	return errs
}

// makePods makes the pods of the workloads, and completes the pods of the input as a cluster would: names, nodes,
// addresses, readiness.
func (m *manifests) makePods() {
	workloads := m.workloadsWithoutPods()
	if m.countPods(workloads); len(m.problems) > 0 {
		return
	}
	placement := newPlacement(m)
	var made []*corev1.Pod
	for _, w := range workloads {
		if m.dropped[w.object] {
			continue
		}
		pods := w.pods(placement.nodesFor)
		pins, err := pinnedAddresses(w.ObjectMeta, w.template.Annotations, len(pods))
		if err != nil {
			m.reject(w.kind, w.object, err)
			continue
		}
		for i, pod := range pods {
			m.found[pod] = m.found[w.object]
			if err := placement.pin(pod, pins, i, sim.ObjectName(w.kind, w)); err != nil {
				m.reject(w.kind, w.object, err)
				break
			}
		}
		made = append(made, pods...)
	}
	for _, pod := range m.pods {
		if observed(pod) {
			normalizeStatus(pod)
			placement.observe(pod)
			continue
		}
		pins, err := pinnedAddresses(&pod.ObjectMeta, nil, 1)
		if err == nil {
			err = placement.pin(pod, pins, 0, sim.ObjectName("pod", pod))
		}
		if err != nil {
			m.reject("pod", pod, err)
			continue
		}
		made = append(made, pod)
	}
	// All pinned and observed addresses are known: the other pods get free ones.
	for _, pod := range made {
		if err := placement.start(pod); err != nil {
			m.problems = append(m.problems, m.found[pod].fault(sim.ObjectName("pod", pod), "", err.Error()))
			return
		}
	}
	m.pods = append(m.pods, made...)
	m.pods = uniquePods(m.pods)
	sim.SortByName(m.pods)
}

// countPods refuses workloads that are invalid or too large, before they take memory.
func (m *manifests) countPods(workloads []*podMaker) {
	total := 0
	for _, w := range workloads {
		if w.kind == "daemonset" {
			w.replicas = int32(len(m.nodes))
		}
		if errs := w.check(); len(errs) > 0 {
			m.reject(w.kind, w.object, errs...)
			continue
		}
		if total += int(w.replicas); total > m.opts.MaxPods {
			m.reject(w.kind, w.object, field.Invalid(field.NewPath("spec", "replicas"), w.replicas,
				fmt.Sprintf("makes more than %d pods in all", m.opts.MaxPods)))
			total = 0 // the next workload that is too large is a separate fault
		}
	}
	for _, pod := range m.pods {
		errs := sim.CheckMeta(&pod.ObjectMeta, validation.IsDNS1123Subdomain)
		errs = append(errs, checkPodSpec(&pod.Spec, field.NewPath("spec"))...)
		l := m.legacy(pod)
		for i, ip := range pod.Status.PodIPs {
			errs = append(errs, l.CheckReachableIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP)...)
		}
		if pod.Status.PodIP != "" {
			errs = append(errs, l.CheckReachableIP(field.NewPath("status", "podIP"), pod.Status.PodIP)...)
		}
		if !m.reject("pod", pod, errs...) {
			m.warn("pod", pod, l)
		}
	}
	m.forget()
}

// workloadsWithoutPods leaves out workloads that would make pods twice: a ReplicaSet next to its Deployment, and the
// workloads of a dump that contains their pods.
func (m *manifests) workloadsWithoutPods() []*podMaker {
	present := map[string]bool{}
	for _, w := range m.workloads {
		present[sim.ObjectName(w.kind, w)] = true
	}
	dumped := false
	for _, pod := range m.pods {
		dumped = dumped || pod.UID != ""
		if owner := metav1.GetControllerOf(pod); owner != nil {
			present["pod of "+sim.NameOf(owner.Kind, pod.Namespace, owner.Name)] = true
		}
	}
	var rest []*podMaker
	for _, w := range m.workloads {
		name := sim.ObjectName(w.kind, w)
		owner := metav1.GetControllerOf(w)
		switch {
		case owner != nil && present[sim.NameOf(owner.Kind, w.Namespace, owner.Name)]:
			m.left.add(m.found[w.object], w.kind, name, "its owner makes the pods")
		case present["pod of "+name] || dumped && w.UID != "":
			m.left.add(m.found[w.object], w.kind, name, "its pods are in the input")
		default:
			rest = append(rest, w)
		}
	}
	return rest
}

// pods makes the workload's pods, on its nodes in turn.
func (w *podMaker) pods(nodesFor func(*corev1.PodSpec) []*corev1.Node) []*corev1.Pod {
	nodes := nodesFor(&w.template.Spec)
	if w.kind == "daemonset" {
		w.replicas = int32(len(nodes))
	}
	pods := make([]*corev1.Pod, 0, w.replicas)
	names := map[string]bool{}
	for i := range w.replicas {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: w.podName(i, names), Labels: w.template.Labels,
		}}
		pod.Spec = w.template.Spec
		if pod.Spec.NodeName == "" {
			pod.Spec.NodeName = nodes[int(i)%len(nodes)].Name
		}
		if w.kind == "statefulset" {
			pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, w.service
		}
		pods = append(pods, pod)
	}
	return pods
}

// podName returns a name as the controller would make it. A hash of the workload's name and the pod's number replaces
// the random part.
func (w *podMaker) podName(i int32, taken map[string]bool) string {
	if w.kind == "statefulset" {
		return fmt.Sprintf("%s-%d", w.Name, w.first+i)
	}
	prefix := w.Name + "-"
	if w.kind == "deployment" {
		// The name of the ReplicaSet between Deployment and pod.
		prefix += rand.SafeEncodeString(fmt.Sprint(hash32(w.Namespace+"/"+w.Name))) + "-"
	}
	for salt := 0; ; salt++ {
		name := suffixedName(prefix, fmt.Sprintf("%s/%s/%s/%d/%d", w.kind, w.Namespace, w.Name, i, salt))
		if !taken[name] {
			taken[name] = true
			return name
		}
	}
}

// suffixedName makes a name from a prefix as generateName does, with a hash of seed in place of five random
// characters. It cuts the prefix so that the name is a valid label.
func suffixedName(prefix, seed string) string {
	const alphabet, length = "bcdfghjklmnpqrstvwxz2456789", 5
	if room := validation.DNS1123LabelMaxLength - length; len(prefix) > room {
		prefix = prefix[:room]
	}
	name := []byte(prefix)
	sum := hash32(seed)
	for range length {
		name = append(name, alphabet[sum%uint32(len(alphabet))])
		sum /= uint32(len(alphabet))
	}
	return string(name)
}

func hash32(text string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(text)) // never fails
	return h.Sum32()
}

// observed reports whether a pod is from a dump, whose status is used unchanged, and not from a plain manifest.
func observed(pod *corev1.Pod) bool { return pod.UID != "" || pod.Status.Phase != "" }

// normalizeStatus sets podIPs from podIP: an old API server fills in podIP only.
func normalizeStatus(pod *corev1.Pod) {
	if len(pod.Status.PodIPs) == 0 && pod.Status.PodIP != "" {
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	}
}

// uniquePods drops duplicates: plain pods are both in the input and among the started pods.
func uniquePods(pods []*corev1.Pod) []*corev1.Pod {
	seen := map[*corev1.Pod]bool{}
	unique := pods[:0]
	for _, pod := range pods {
		if !seen[pod] {
			seen[pod] = true
			unique = append(unique, pod)
		}
	}
	return unique
}

// pinnedAddresses reads the annotation PodIPs of a workload or of its template.
func pinnedAddresses(meta *metav1.ObjectMeta, template map[string]string, pods int) (map[corev1.IPFamily][]netip.Addr, *field.Error) {
	text, path := meta.Annotations[PodIPs], field.NewPath("metadata", "annotations")
	if text == "" {
		text, path = template[PodIPs], field.NewPath("spec", "template", "metadata", "annotations")
	}
	pins := map[corev1.IPFamily][]netip.Addr{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		address, ok := inet.ParseAddr(part)
		var strict *sim.Legacy
		if bad := strict.CheckReachableIP(path, part); len(bad) > 0 || !ok {
			return nil, field.Invalid(path, part, PodIPs+": not an address that a pod can have")
		}
		family := inet.FamilyOf(address)
		if pins[family] = append(pins[family], address); len(pins[family]) > pods {
			return nil, field.Invalid(path, text, fmt.Sprintf("%s: more %s addresses than pods (%d)", PodIPs, family, pods))
		}
	}
	return pins, nil
}

// impliedNode returns a node that the input does not describe.
func impliedNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
	}}
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}
