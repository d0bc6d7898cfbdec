package model

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// sample has the points of a fit: sizes divided by the largest, and values.
type sample struct {
	at     []size
	y      []float64
	floor  []float64 // the negligible amount at that point, added to both sides of an error
	weight []float64
	count  []float64 // the number of values of each point
	ref    size      // the largest value of each variable
	counts bool      // values without noise: a formula fits or it does not
}

func (s *sample) error(i int, predicted float64) float64 {
	return math.Log((predicted + s.floor[i]) / (s.y[i] + s.floor[i]))
}

// huber is the relative error above which the loss is linear.
const huber = 0.1

// The bounds of a coefficient's logarithm. The lower bound means zero.
const leastLog, mostLog = -60, 60

// loss returns the loss of a formula on the points idx: half the squared relative errors, and linear above huber.
func (s *sample) loss(f Form, params []float64, idx []int) float64 {
	total := 0.0
	coefficients, frees := f.plain(params)
	for _, i := range idx {
		r := math.Abs(s.error(i, f.value(s.at[i], coefficients, frees)))
		if r <= huber {
			total += s.weight[i] * r * r / 2
		} else {
			total += s.weight[i] * huber * (r - huber/2)
		}
	}
	return total
}

// plain returns the coefficients instead of their logarithms, and the other parameters.
func (f Form) plain(params []float64) (coefficients, frees []float64) {
	coefficients = make([]float64, f.coefficients())
	for i := range coefficients {
		coefficients[i] = math.Exp(params[i])
	}
	return coefficients, params[len(coefficients):]
}

// start returns the best start of a search. It computes the coefficients by least squares for each combination of the
// other parameters' start values.
func (s *sample) start(f Form, idx []int) []float64 {
	var best []float64
	least := math.Inf(1)
	for _, frees := range combinations(f.frees()) {
		params := append(s.coefficients(f, frees, idx), frees...)
		if loss := s.loss(f, params, idx); best == nil || loss < least {
			best, least = params, loss
		}
	}
	return best
}

func combinations(frees []free) [][]float64 {
	out := [][]float64{nil}
	for _, fr := range frees {
		var next [][]float64
		for _, head := range out {
			for _, v := range fr.starts {
				next = append(next, append(append([]float64(nil), head...), v))
			}
		}
		out = next
	}
	return out
}

// coefficients returns the non-negative coefficients with the least squared relative error, as logarithms. There are
// few, so it tries every subset of them as the nonzero ones.
func (s *sample) coefficients(f Form, frees []float64, idx []int) []float64 {
	k := len(f.names())
	rows := make([][]float64, len(idx))
	for j, i := range idx {
		scale := math.Sqrt(s.weight[i]) / (s.y[i] + s.floor[i])
		rows[j] = f.terms(s.at[i], frees, make([]float64, 0, 5))
		for t := range rows[j] {
			rows[j][t] *= scale
		}
	}
	gram, right := mat.NewSymDense(k, nil), make([]float64, k)
	for j, i := range idx {
		y := math.Sqrt(s.weight[i]) * s.y[i] / (s.y[i] + s.floor[i])
		for a := range k {
			right[a] += rows[j][a] * y
			for b := a; b < k; b++ {
				gram.SetSym(a, b, gram.At(a, b)+rows[j][a]*rows[j][b])
			}
		}
	}
	best, most := make([]float64, k), math.Inf(-1)
	for chosen := 1<<k - 1; chosen > 0; chosen-- {
		x, gain, ok := subset(gram, right, chosen)
		if ok && chosen == 1<<k-1 {
			best = x // no subset is better than all of them
			break
		}
		if ok && gain > most {
			best, most = x, gain
		}
	}
	out := make([]float64, k)
	for i, v := range best {
		out[i] = leastLog
		if v > 0 {
			out[i] = min(mostLog, max(leastLog, math.Log(v)))
		}
	}
	return out
}

// subset solves the normal equations for the chosen coefficients; the others are zero. ok is false if one of them is
// negative. gain is the decrease of the squared error.
func subset(gram *mat.SymDense, right []float64, chosen int) (x []float64, gain float64, ok bool) {
	var in []int
	for i := range right {
		if chosen&(1<<i) != 0 {
			in = append(in, i)
		}
	}
	a, b := mat.NewSymDense(len(in), nil), mat.NewVecDense(len(in), nil)
	for i, p := range in {
		b.SetVec(i, right[p])
		for j := i; j < len(in); j++ {
			a.SetSym(i, j, gram.At(p, in[j]))
		}
		a.SetSym(i, i, a.At(i, i)*(1+1e-10))
	}
	solved, ok := solveSym(a, b)
	if !ok {
		return nil, 0, false
	}
	x = make([]float64, len(right))
	for i, p := range in {
		if x[p] = solved.AtVec(i); x[p] < 0 || math.IsNaN(x[p]) {
			return nil, 0, false
		}
		gain += x[p] * right[p]
	}
	return x, gain, true
}

// solveSym solves a·x = b; ok is false if a is not positive definite in floating point.
func solveSym(a *mat.SymDense, b *mat.VecDense) (*mat.VecDense, bool) {
	var c mat.Cholesky
	if !c.Factorize(a) {
		return nil, false
	}
	var x mat.VecDense
	if err := c.SolveVecTo(&x, b); err != nil {
		return nil, false
	}
	return &x, true
}

// Limits of refine: its steps, and the minimum relative gain of a step to continue.
const (
	mostSteps  = 30
	enoughGain = 1e-6
)

// refine improves params on the points idx by Levenberg-Marquardt steps with Huber weights.
func (s *sample) refine(f Form, params []float64, idx []int) (fitted []float64, loss float64) {
	k, frees := len(f.names()), f.frees()
	fitted, loss = append([]float64(nil), params...), s.loss(f, params, idx)
	damping := 1e-3
	for range mostSteps {
		a, b := s.normal(f, fitted, idx)
		improved := false
		for range 8 {
			damped := mat.NewSymDense(len(fitted), nil)
			damped.CopySym(a)
			for i := range fitted {
				damped.SetSym(i, i, a.At(i, i)*(1+damping)+1e-9)
			}
			step, ok := solveSym(damped, b)
			if !ok {
				damping *= 10
				continue
			}
			next := make([]float64, len(fitted))
			for i := range next {
				low, high := float64(leastLog), float64(mostLog)
				if i >= k {
					low, high = frees[i-k].low, frees[i-k].high
				}
				next[i] = min(high, max(low, fitted[i]+min(3, max(-3, step.AtVec(i)))))
			}
			if now := s.loss(f, next, idx); now < loss {
				improved = loss-now > enoughGain*loss
				fitted, loss = next, now
				damping = max(damping/5, 1e-9)
				break
			}
			damping *= 5
		}
		if !improved {
			break
		}
	}
	return fitted, loss
}

// normal returns the equations of one step, from the derivatives of the errors by the parameters.
func (s *sample) normal(f Form, params []float64, idx []int) (*mat.SymDense, *mat.VecDense) {
	n := len(params)
	a, b := make([]float64, n*n), make([]float64, n)
	coefficients, frees := f.plain(params)
	var room [8]float64
	for _, i := range idx {
		value := f.value(s.at[i], coefficients, frees)
		r, weight := s.error(i, value), s.weight[i]
		if m := math.Abs(r); m > huber {
			weight *= huber / m
		}
		slopes := f.slopes(s.at[i], coefficients, frees, room[:0])
		for p := range n {
			slopes[p] /= value + s.floor[i]
		}
		for p := range n {
			b[p] -= weight * slopes[p] * r
			for q := p; q < n; q++ {
				a[p*n+q] += weight * slopes[p] * slopes[q]
			}
		}
	}
	return mat.NewSymDense(n, a), mat.NewVecDense(n, b)
}
