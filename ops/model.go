package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// models are the views among the projections, in the order of their names.
func (p Program) models() (models []projection.Model) {
	for _, one := range p.Projections {
		if m, ok := one.(projection.Model); ok {
			models = append(models, m)
		}
	}
	slices.SortFunc(models, func(a, b projection.Model) int {
		return strings.Compare(a.ProjectionName(), b.ProjectionName())
	})
	return models
}

func (p Program) modelNames() (names []string) {
	for _, m := range p.models() {
		names = append(names, m.ProjectionName())
	}
	return names
}

// someModels is the view of that name; without one, all of them.
func (p Program) someModels(verb, name string) ([]projection.Model, error) {
	if models := p.models(); name == "" && len(models) > 0 {
		return models, nil
	}
	m, err := p.model(verb, name)
	return []projection.Model{m}, err
}

// model is the view of that name.
func (p Program) model(verb, name string) (projection.Model, error) {
	names := p.modelNames()
	if at := slices.Index(names, name); at >= 0 {
		return p.models()[at], nil
	}
	return nil, &unableError{p.noModel(verb, name, names)}
}

func (p Program) noModel(verb, name string, names []string) error {
	isHandler := slices.ContainsFunc(p.Projections, func(one projection.Projection) bool { return one.ProjectionName() == name })
	switch {
	case isHandler:
		return fmt.Errorf("%s is a handler, and what a handler writes is its own: %s is for views", name, verb)
	case len(p.Projections) == 0:
		return fmt.Errorf("%s needs the folds of the views, and they are in the application: run it there, as `yourapp ops %s …`\nops.Run gives an application that command line; docs/cli.md shows the three lines that it takes", verb, verb)
	case len(names) == 0:
		return errors.New("this program has no views")
	}
	return fmt.Errorf("this program has no view %.60q: it has %s", name, strings.Join(names, ", "))
}

// noRow is the error for a key of which a view has nothing.
func noRow(m projection.Model, key string) error {
	hint := "its keys are what its function By makes"
	if !m.FollowsWholeLog() {
		hint = "its keys are the names of streams"
	}
	return fmt.Errorf("view %s has no row %.200q; %s: %w", m.ProjectionName(), key, hint, weir.ErrNotFound)
}

// statusOfView is how a view of this program is doing.
func statusOfView(ctx context.Context, s *eventstore.Store, view string) (projection.Status, error) {
	all, err := projection.Statuses(ctx, s)
	if err != nil {
		return projection.Status{}, err
	}
	at := slices.IndexFunc(all, func(one projection.Status) bool { return one.View == view })
	if at < 0 {
		return projection.Status{}, &unableError{fmt.Errorf("view %s is not in the schema %s yet: start the application once, it makes the tables", view, s.Schema())}
	}
	return all[at], nil
}
