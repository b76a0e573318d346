package esker

import "sync"

// An owner is a database or a transaction: it guards memory of C that calls use and that ends with it.
//
//	call:  enter -> C -> leave          any number at a time if shared, else one
//	end:   waits for calls, frees the members (walks, cursors, transactions), then itself
//
// After the end, enter returns the reason. So no call ever sees memory that was freed.
type owner struct {
	// Held shared or alone by calls, and alone by the end.
	calls sync.RWMutex
	// Whether calls may run at the same time.
	shared bool
	// Why calls are refused. nil: not ended.
	reason error

	membersMu sync.Mutex
	members   map[member]struct{}
}

// A member is memory of C that must be freed before that of its owner. release is called once, while no call
// is in the owner.
type member interface{ release() }

func (o *owner) enter() error {
	if o.shared {
		o.calls.RLock()
	} else {
		o.calls.Lock()
	}
	if o.reason != nil {
		defer o.leave()
		return o.reason
	}
	return nil
}

func (o *owner) leave() {
	if o.shared {
		o.calls.RUnlock()
	} else {
		o.calls.Unlock()
	}
}

// add notes a member. The caller has entered.
func (o *owner) add(m member) {
	o.membersMu.Lock()
	defer o.membersMu.Unlock()
	if o.members == nil {
		o.members = map[member]struct{}{}
	}
	o.members[m] = struct{}{}
}

// remove forgets a member, and returns whether it was one: then the caller frees it.
func (o *owner) remove(m member) bool {
	o.membersMu.Lock()
	defer o.membersMu.Unlock()
	_, was := o.members[m]
	delete(o.members, m)
	return was
}

// takeMembers returns the members of a moment, and forgets them.
func (o *owner) takeMembers() map[member]struct{} {
	o.membersMu.Lock()
	defer o.membersMu.Unlock()
	members := o.members
	o.members = nil
	return members
}

// end refuses further calls, waits for those that run, and frees the members, then the owner. It returns the
// reason of an earlier end.
func (o *owner) end(reason error, free func() error) error {
	o.calls.Lock()
	defer o.calls.Unlock()
	if o.reason != nil {
		return o.reason
	}
	o.reason = reason
	o.releaseMembers()
	return free()
}

// releaseMembers frees all members. The caller holds calls alone.
func (o *owner) releaseMembers() {
	for m := range o.takeMembers() {
		m.release()
	}
}
