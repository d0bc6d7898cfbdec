package bench

import "context"

// subject is what is measured, while it runs. inProcess is the lab's own proxier on the fake clientset's informers;
// outside is any proxier as a process of its own, fed by the API front. Both are watched by the same observer of the kernel.
type subject interface {
	// stop ends it and leaves its rules in place.
	stop() error
	// inSync waits until it has taken in every change and the kernel holds what it shall.
	inSync(ctx context.Context) error
	// disturbed tells it that something broke what it had written: what is there says nothing any more.
	disturbed()
	// count records what the kernel holds of it.
	count() error
	// peakRSS of its process, in bytes.
	peakRSS() (uint64, error)
	// aside does what is no part of what is measured, such as reading whole tables back: its memory does not count.
	aside(do func() error) error
}

// start brings the subject up: it begins with the cluster as it is now. Made is how long that took to make, in seconds.
func (r *repetition) start(ctx context.Context, made float64) (err error) {
	if err := r.plantSentinels(ctx); err != nil {
		return err
	}
	if r.Feed == FeedAPI {
		r.subject, err = r.startOutside(ctx)
	} else {
		r.subject, err = r.startInProcess(ctx, made)
	}
	return err
}

func (r *repetition) restart(ctx context.Context, name string) error {
	r.say.stage(name, 0, 0)
	r.beforeRestart(ctx)
	if err := r.stop(); err != nil {
		return err
	}
	return r.start(ctx, 0)
}

// stop ends the subject, if one runs.
func (r *repetition) stop() error {
	if r.subject == nil {
		return nil
	}
	s := r.subject
	r.subject = nil
	return s.stop()
}
