package model

import (
	"fmt"
	"math"
	"strings"
)

// size has all variables that a formula may depend on.
type size struct {
	s     float64 // Services
	n     float64 // endpoints in all
	rules float64 // predicted by the subject's fit of rules; 0 without one
	c     float64 // changed Services of a partial sync
	ce    float64 // endpoints of changed Services
	e     float64 // endpoints per Service
	x     float64 // rules that a packet crosses
}

// per divides by the largest values of a fit, so that coefficients have similar magnitudes.
func (v size) per(ref size) size {
	divide := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	return size{divide(v.s, ref.s), divide(v.n, ref.n), divide(v.rules, ref.rules), divide(v.c, ref.c), divide(v.ce, ref.ce), divide(v.e, ref.e), divide(v.x, ref.x)}
}

// times is the inverse of per.
func (v size) times(ref size) size {
	return size{v.s * ref.s, v.n * ref.n, v.rules * ref.rules, v.c * ref.c, v.ce * ref.ce, v.e * ref.e, v.x * ref.x}
}

func (v size) of(variable string) float64 {
	switch variable {
	case "s":
		return v.s
	case "n":
		return v.n
	case "rules":
		return v.rules
	case "c":
		return v.c
	case "c·e":
		return v.ce
	case "e":
		return v.e
	case "crossed":
		return v.x
	}
	return 0
}

// Form is a formula of growth: a part for the state of the cluster and, for partial syncs, a part for the change.
type Form struct {
	// State: const (a), power (b·x^p), line (a + b·x), offset-power (a + b·x^p), root (the same, for slow growth),
	// square (a + b·x + d·x²), quadratic (a + b·x²), bend (a + b·x + d·max(0, x−x0)), plane (a + b·s + d·n),
	// plane-square (a + b·n + d·s²), plane-cubic (the same with s³), plane-power (a + b·n + d·s^p), or sum (a whole sync
	// as the sum of its phases).
	State string `json:"state"`
	// X is the variable x of State: s (Services), n (endpoints in all), rules, or crossed (rules that a packet
	// crosses).
	X string `json:"x,omitempty"`
	// Change: empty, line (g·y) or power (g·y^q).
	Change string `json:"change,omitempty"`
	// Y is c (changed Services) or c·e (their endpoints).
	Y string `json:"y,omitempty"`
}

// Bounds of the exponents. Work that grows more slowly than linearly is a fixed part plus a line: lower exponents fit
// only noise. Roots are for packets in a tree of chains.
const (
	leastExponent, mostExponent             = 0.8, 2.7
	leastRoot, mostRoot                     = 0.1, 0.7
	leastChangeExponent, mostChangeExponent = 0.5, 1.5
)

// free is a parameter that is not a coefficient, with its bounds and the start values of a search.
type free struct {
	name      string
	low, high float64
	starts    []float64
}

func (f Form) frees() []free {
	var out []free
	switch f.State {
	case "power", "offset-power":
		out = append(out, free{"p", leastExponent, mostExponent, []float64{1, 1.5, 2, 2.6}})
	case "plane-power":
		out = append(out, free{"p", 1.2, mostExponent, []float64{1.5, 2, 2.6}})
	case "root":
		out = append(out, free{"p", leastRoot, mostRoot, []float64{0.2, 0.5}})
	case "bend": // the position of the bend, as a share of the largest size
		out = append(out, free{"x0", 0.02, 0.7, []float64{0.1, 0.25, 0.5}})
	}
	if f.Change == "power" {
		out = append(out, free{"q", leastChangeExponent, mostChangeExponent, []float64{0.6, 1}})
	}
	return out
}

// names returns the names of the coefficients, in the order of terms.
func (f Form) names() []string {
	var out []string
	switch f.State {
	case "const":
		out = []string{"a"}
	case "power":
		out = []string{"b"}
	case "line", "offset-power", "root", "quadratic":
		out = []string{"a", "b"}
	default:
		out = []string{"a", "b", "d"}
	}
	if f.Change != "" {
		out = append(out, "g")
	}
	return out
}

// params returns the number of parameters.
func (f Form) params() int { return len(f.names()) + len(f.frees()) }

// terms returns the factors of the coefficients at a size, which was divided by the largest size of the fit.
func (f Form) terms(v size, frees []float64, out []float64) []float64 {
	out = out[:0]
	x := v.of(f.X)
	switch f.State {
	case "const":
		out = append(out, 1)
	case "power":
		out = append(out, math.Pow(x, frees[0]))
	case "line":
		out = append(out, 1, x)
	case "offset-power", "root":
		out = append(out, 1, math.Pow(x, frees[0]))
	case "square":
		out = append(out, 1, x, x*x)
	case "bend":
		out = append(out, 1, x, max(0, x-frees[0]))
	case "plane":
		out = append(out, 1, v.s, v.n)
	case "quadratic":
		out = append(out, 1, x*x)
	case "plane-square":
		out = append(out, 1, v.n, v.s*v.s)
	case "plane-cubic":
		out = append(out, 1, v.n, v.s*v.s*v.s)
	case "plane-power":
		out = append(out, 1, v.n, math.Pow(v.s, frees[0]))
	}
	switch f.Change {
	case "line":
		out = append(out, v.of(f.Y))
	case "power":
		out = append(out, math.Pow(v.of(f.Y), frees[len(frees)-1]))
	}
	return out
}

// at returns the value of the formula at a size. params has the logarithms of the coefficients, then the other
// parameters.
func (f Form) at(v size, params []float64) float64 {
	var room [8]float64
	k := f.coefficients()
	for i := range k {
		room[i] = math.Exp(params[i])
	}
	return f.value(v, room[:k], params[k:])
}

// value is like at, with the coefficients instead of their logarithms.
func (f Form) value(v size, coefficients, frees []float64) float64 {
	var room [5]float64
	total := 0.0
	for i, t := range f.terms(v, frees, room[:0]) {
		total += coefficients[i] * t
	}
	return total
}

// slopes returns the derivatives of the value by each parameter of at.
func (f Form) slopes(v size, coefficients, frees, out []float64) []float64 {
	out = f.terms(v, frees, out)
	k := len(out)
	for i := range out {
		out[i] *= coefficients[i]
	}
	x := v.of(f.X)
	switch f.State {
	case "power":
		out = append(out, out[0]*math.Log(max(x, 1e-12)))
	case "offset-power", "root":
		out = append(out, out[1]*math.Log(max(x, 1e-12)))
	case "plane-power":
		out = append(out, out[2]*math.Log(max(v.s, 1e-12)))
	case "bend":
		slope := 0.0
		if x > frees[0] {
			slope = -coefficients[2]
		}
		out = append(out, slope)
	}
	if f.Change == "power" {
		out = append(out, out[k-1]*math.Log(max(v.of(f.Y), 1e-12)))
	}
	return out
}

// coefficients returns the number of coefficients.
func (f Form) coefficients() int {
	n := 3
	switch f.State {
	case "const", "power":
		n = 1
	case "line", "offset-power", "root", "quadratic":
		n = 2
	}
	if f.Change != "" {
		n++
	}
	return n
}

// String returns the formula in letters: "a + b·n^p + g·c".
func (f Form) String() string {
	var parts []string
	switch f.State {
	case "const":
		parts = []string{"a"}
	case "power":
		parts = []string{"b·" + f.X + "^p"}
	case "line":
		parts = []string{"a", "b·" + f.X}
	case "offset-power", "root":
		parts = []string{"a", "b·" + f.X + "^p"}
	case "square":
		parts = []string{"a", "b·" + f.X, "d·" + f.X + "²"}
	case "bend":
		parts = []string{"a", "b·" + f.X, fmt.Sprintf("d·max(0, %s−x0)", f.X)}
	case "plane":
		parts = []string{"a", "b·s", "d·n"}
	case "quadratic":
		parts = []string{"a", "b·" + f.X + "²"}
	case "plane-square":
		parts = []string{"a", "b·n", "d·s²"}
	case "plane-cubic":
		parts = []string{"a", "b·n", "d·s³"}
	case "plane-power":
		parts = []string{"a", "b·n", "d·s^p"}
	}
	switch f.Change {
	case "line":
		parts = append(parts, "g·"+f.Y)
	case "power":
		parts = append(parts, "g·("+f.Y+")^q")
	}
	return strings.Join(parts, " + ")
}

// readable returns the numbers for the letters of String, for sizes that are not divided: seconds, bytes or counts per
// unit of x.
func (f Form) readable(ref size, params []float64) map[string]float64 {
	names, frees := f.names(), f.frees()
	k := len(names)
	out := map[string]float64{}
	for i, fr := range frees {
		out[fr.name] = params[k+i]
	}
	// At x = ref, each power of x is 1. So the cost per unit of x is the coefficient divided by the power of ref.
	for i, name := range names {
		value := math.Exp(params[i])
		switch {
		case name == "g" && f.Change == "power":
			value /= math.Pow(ref.of(f.Y), out["q"])
		case name == "g":
			value /= ref.of(f.Y)
		case name == "b" && (f.State == "power" || f.State == "offset-power" || f.State == "root"):
			value /= math.Pow(ref.of(f.X), out["p"])
		case f.State == "plane" && name == "b":
			value /= ref.s
		case f.State == "plane" && name == "d":
			value /= ref.n
		case f.State == "quadratic" && name == "b":
			value /= ref.of(f.X) * ref.of(f.X)
		case (f.State == "plane-square" || f.State == "plane-cubic" || f.State == "plane-power") && name == "b":
			value /= ref.n
		case f.State == "plane-square" && name == "d":
			value /= ref.s * ref.s
		case f.State == "plane-cubic" && name == "d":
			value /= ref.s * ref.s * ref.s
		case f.State == "plane-power" && name == "d":
			value /= math.Pow(ref.s, out["p"])
		case name == "d" && f.State == "square":
			value /= ref.of(f.X) * ref.of(f.X)
		case name == "b" || name == "d":
			value /= ref.of(f.X)
		}
		out[name] = value
	}
	if x0, ok := out["x0"]; ok {
		out["x0"] = x0 * ref.of(f.X)
	}
	return out
}

// forms returns the formulas to try, simplest first. variables omits rules if their numbers are unknown or do not grow.
// changes is empty if too few different numbers of changes were measured.
func forms(variables, changes []string) []Form {
	states := []Form{{State: "const"}}
	for _, state := range []string{"power", "line", "root", "quadratic", "offset-power", "square", "bend"} {
		for _, x := range variables {
			states = append(states, Form{State: state, X: x})
		}
	}
	states = append(states, Form{State: "plane"}, Form{State: "plane-square"}, Form{State: "plane-power"})
	out := states
	for _, y := range changes {
		for _, change := range []string{"line", "power"} {
			for _, state := range states {
				state.Change, state.Y = change, y
				out = append(out, state)
			}
		}
	}
	return out
}
