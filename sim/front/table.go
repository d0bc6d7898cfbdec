package front

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// tableColumns are the columns that kubectl prints of a resource. The server defines and fills them; see KEP-2130 and
// the printers of the API server.
type tableColumns struct {
	columns []metav1.TableColumnDefinition
	cells   func(o runtime.Object, age func(metav1.Time) string) []any
}

// column describes a column. kubectl shows columns of priority 1 with -o wide only.
func column(name string, priority int32) metav1.TableColumnDefinition {
	c := metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority}
	if name == "Name" {
		c.Format = "name"
	}
	return c
}

// columnsOf describes the narrow columns and the wide ones.
func columnsOf(narrow []string, wide ...string) []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	for _, name := range narrow {
		all = append(all, column(name, 0))
	}
	for _, name := range wide {
		all = append(all, column(name, 1))
	}
	return all
}

// tableOf makes a Table of items.
func (f *Front) tableOf(r *http.Request, of *resource, head metav1.ListMeta, items []*item, columns bool) (runtime.Object, error) {
	include := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
	default:
		return nil, apierrors.NewBadRequest("unrecognized includeObject value: " + string(include))
	}
	now := f.clock.Now()
	age := func(t metav1.Time) string { return ageAt(now, t.Time) }
	table := &metav1.Table{ListMeta: head, Rows: make([]metav1.TableRow, len(items))}
	table.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Table"))
	if columns {
		table.ColumnDefinitions = of.table.columns
	}
	for i, it := range items {
		row := &table.Rows[i]
		row.Cells = of.table.cells(it.object, age)
		switch include {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			raw, err := it.encoded(formJSON)
			if err != nil {
				return nil, err
			}
			row.Object.Raw = raw
		default:
			row.Object.Object = metadataOf(it)
		}
	}
	return table, nil
}

func ageAt(now, then time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then))
}
