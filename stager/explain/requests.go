package explain

import (
	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
)

// pageOfKeys is the number of objects in one page of a listing.
const pageOfKeys = 1000

// ofCommit is the number of requests for the records of one checkpoint: its manifest and its
// commit.
const ofCommit = 2

// asks counts the requests of all pods to a source.
func (e *explainer) asks(p *work, in plan.Input, url string, s *size, mine part) {
	pods := int64(max(p.Pods, 1))
	st := Store{Object: p.Object, Role: p.Role, Name: "input " + in.Name, URL: url, AtLeast: s.atLeast || s.from == Nowhere || p.Pods == 0}
	epochs := int64(1)
	if in.Window != nil {
		epochs = int64(in.Order.Epochs)
		switch {
		case epochs == 0:
			epochs, st.AtLeast, st.Note = 1, true, "one epoch of those without end"
		case epochs > 1 && in.Window.Reuse == plan.ReuseFit && mine.disk > 0 && mine.disk <= int64(in.Window.Size):
			epochs, st.Note = 1, "what was fetched stays for all epochs"
		case epochs > 1 && in.Window.Reuse == plan.ReusePin:
			st.Note = "less by what stays from epoch to epoch"
		}
	}
	// The pods of a group read the source once together. Every further group reads it again.
	times := pods
	if n := int64(p.sharing(in)); n > 1 && s.from != AtMost {
		times = (pods + n - 1) / n
	}
	st.Egress = s.bytes * times * epochs
	st.Requests = Requests{List: pods * max((s.objects+pageOfKeys-1)/pageOfKeys, 1), Get: s.gets * times * epochs}
	e.report.Stores = append(e.report.Stores, e.priced(st))
}

// saves counts the requests of all pods to a destination.
func (e *explainer) saves(p *work, out plan.Output, o Output, known bool) {
	st := Store{Object: p.Object, Role: p.Role, Name: "output " + out.Name, URL: out.Destination, AtLeast: !known || p.Pods == 0}
	if known {
		times := int64(max(p.Pods, 1)) * int64(e.Checkpoints)
		parts := (backends.Capabilities{PartSize: usualPart, MaxParts: 10_000}).PartLength(o.Checkpoint)
		puts := (o.Checkpoint + parts - 1) / parts
		if puts > 1 {
			puts += 2 // to create and to complete a multipart upload
		}
		st.Ingress = o.Checkpoint * times
		st.Requests = Requests{Put: (puts + ofCommit) * times}
	}
	e.report.Stores = append(e.report.Stores, e.priced(st))
}

// priced returns the store with its cost, if it has a price.
func (e *explainer) priced(st Store) Store {
	if price := e.Prices.of(st.URL); price != nil {
		cost := float64(st.Requests.List)/1000*price.List + float64(st.Requests.Get)/1000*price.Get + float64(st.Requests.Put)/1000*price.Put +
			float64(st.Egress)/1e9*price.Egress + float64(st.Ingress)/1e9*price.Ingress
		st.Cost = &cost
	}
	return st
}

// total sums over all pods and stores.
func (e *explainer) total() {
	t := &e.report.Total
	for _, p := range e.report.Pods {
		t.Pods += p.Pods
		t.AtLeast = t.AtLeast || p.Pods == 0
	}
	for _, st := range e.report.Stores {
		t.Requests.List += st.Requests.List
		t.Requests.Get += st.Requests.Get
		t.Requests.Put += st.Requests.Put
		t.Egress += st.Egress
		t.Ingress += st.Ingress
		t.AtLeast = t.AtLeast || st.AtLeast
		if st.Cost != nil {
			if t.Cost == nil {
				t.Cost, t.Currency = new(float64), e.Prices.Currency
			}
			*t.Cost += *st.Cost
		}
	}
}
