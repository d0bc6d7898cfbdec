package step

import (
	"context"
	"errors"

	"synclab/bench/subject"
)

func (r *Parts) restart(ctx context.Context, s Step) error {
	r.ChangeLayout(s.Restart.Layout)
	return r.Host.Restart(ctx, s.Name)
}

// migrate replaces the subject by another one.
func (r *Parts) migrate(ctx context.Context, s Step) (err error) {
	to := r.First
	if s.Migrate.To != "" {
		if to, err = subject.Parse(s.Migrate.To); err != nil {
			return err
		}
	}
	if r.Followed {
		return errors.New("cannot move in a followed cluster, whose state is not known exactly: use synclab capture, and -f")
	}
	return r.Host.Migrate(ctx, to, s.Migrate.Gap, s.Name)
}
