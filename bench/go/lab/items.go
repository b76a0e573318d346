package lab

// The items of every suite behind one type: crates/esker-bench/src/suites/items.rs in Go.

import "esker.invalid/bench/generate"

// source is a generator with its parameters, as in a plan.
type source struct {
	Kind       string `json:"kind"`
	Seed       uint64 `json:"seed"`
	ValueBytes int    `json:"value_bytes"`
	Number     uint64 `json:"number"` // its meaning depends on the kind
}

func (s source) keyBytes() int {
	switch s.Kind {
	case "items", "large":
		return generate.ItemKeyBytes
	case "ycsb":
		return generate.YcsbKeyBytes
	case "ints":
		return 4
	case "storage", "storage_in_order", "keyspaces":
		return generate.StorageKeyBytes
	case "badger":
		return generate.BadgerKeyBytes
	case "shape":
		return int(generate.Shapes[s.Number].KeyBytes)
	}
	return len(generate.ObigKey{})
}

func (s source) itemBytes() uint64 { return uint64(s.keyBytes() + s.ValueBytes) }

// items generates the items of a source.
type items struct {
	source
	badger *generate.BadgerItems
	pool   *generate.Pool
}

func newItems(s source) *items {
	made := &items{source: s}
	switch s.Kind {
	case "badger":
		made.badger = generate.NewBadgerItems(s.Seed, s.ValueBytes)
	case "large":
		made.pool = generate.NewPool(s.Seed)
	}
	return made
}

func (s *items) storage() generate.StorageItems {
	return generate.StorageItems{Seed: s.Seed, Sequential: s.Kind == "storage_in_order"}
}

// obig returns the key of item i of suite obigstore.
func (s *items) obig(i uint64) generate.ObigKey {
	if s.Kind == "sequential" {
		return generate.ObigSequential(i)
	}
	return generate.ObigRandom(s.Seed, i)
}

// key makes the key of item i, and may use buffer for it.
func (s *items) key(i uint64, buffer []byte) []byte {
	if s.Kind == "shape" {
		return generate.Shapes[s.Number].Key(s.Seed, i, buffer[:0])
	}
	buffer = append(buffer[:0], make([]byte, s.keyBytes())...)
	switch s.Kind {
	case "items":
		return generate.Items{Seed: s.Seed}.Key(i, (*[generate.ItemKeyBytes]byte)(buffer))
	case "large":
		if i < s.Number {
			return generate.Items{Seed: s.Seed}.Key(i, (*[generate.ItemKeyBytes]byte)(buffer))
		}
		return generate.Items{Seed: s.Seed - 1}.Key(i-s.Number, (*[generate.ItemKeyBytes]byte)(buffer))
	case "ycsb":
		return generate.YcsbRecords{Seed: s.Seed}.Key(i, (*[generate.YcsbKeyBytes]byte)(buffer))
	case "ints":
		return generate.Ints{Seed: s.Seed}.Key(uint32(i), (*[4]byte)(buffer))
	case "storage", "storage_in_order", "keyspaces":
		return s.storage().Key(i, (*[generate.StorageKeyBytes]byte)(buffer))
	case "badger":
		return s.badger.Key(i, (*[generate.BadgerKeyBytes]byte)(buffer))
	}
	key := s.obig(i)
	copy(buffer, key[:])
	return buffer
}

// value makes a version of the value of item i in buffer, or returns a slice of a pool.
func (s *items) value(i, version uint64, buffer *[]byte) []byte {
	switch {
	case s.badger != nil:
		return s.badger.Value(i)
	case s.pool != nil && i < s.Number:
		return s.pool.Value(i, s.ValueBytes)
	case cap(*buffer) < s.ValueBytes:
		*buffer = make([]byte, s.ValueBytes)
	}
	value := (*buffer)[:s.ValueBytes]
	switch s.Kind {
	case "items":
		return generate.Items{Seed: s.Seed}.Value(i, (*[generate.ItemValueBytes]byte)(value))
	case "large":
		return generate.Items{Seed: s.Seed - 1}.Value(i-s.Number, (*[generate.ItemValueBytes]byte)(value))
	case "ycsb":
		return generate.YcsbRecords{Seed: s.Seed}.Value(i, version, (*[generate.YcsbValueBytes]byte)(value))
	case "ints":
		return generate.Ints{Seed: s.Seed}.Value(uint32(i), (*[8]byte)(value))
	case "shape":
		return generate.Shapes[s.Number].Value(s.Seed, i, value)
	case "storage", "storage_in_order", "keyspaces":
		return s.storage().Value(i, version, value)
	}
	key := s.obig(i)
	return generate.ObigValue(&key, value)
}

// item returns the number of the item with this key, for items that a scan may show.
func (s *items) item(key []byte) (uint64, bool) {
	if s.Kind == "ycsb" {
		return generate.YcsbRecords{Seed: s.Seed}.Item(key)
	}
	return s.storage().Item(key)
}

// content is the set of items that a database must hold: a range of numbers without those that were removed.
type content struct {
	from, to uint64
	versions []uint32 // the newest version of each item; 0 beyond the end
	bits     []uint64 // one bit per item, set if it is live; nil if all are
}

func (c *content) has(i uint64) bool {
	return i >= c.from && i < c.to && (c.bits == nil || c.bits[i/64]>>(i%64)&1 == 1)
}

func (c *content) set(i uint64, isThere bool) {
	if c.bits == nil {
		c.bits = make([]uint64, (c.to+63)/64)
		for word := range c.bits {
			c.bits[word] = ^uint64(0)
		}
	}
	if c.bits[i/64] |= 1 << (i % 64); !isThere {
		c.bits[i/64] ^= 1 << (i % 64)
	}
}

func (c *content) version(i uint64) uint64 {
	if i < uint64(len(c.versions)) {
		return uint64(c.versions[i])
	}
	return 0
}

// keepVersions makes room for the versions of all items.
func (c *content) keepVersions() {
	c.versions = append(c.versions, make([]uint32, c.to-uint64(len(c.versions)))...)
}

// each visits the first limit live items in the order of their numbers, and returns how many there were.
func (c *content) each(limit uint64, visit func(i uint64)) (count uint64) {
	for i := c.from; i < c.to && count < limit; i++ {
		if c.has(i) {
			visit(i)
			count++
		}
	}
	return count
}

func (c *content) len() uint64 {
	if c.bits == nil {
		return c.to - c.from
	}
	return c.each(^uint64(0), func(uint64) {})
}

// sum adds up ofItem over the first limit items.
func (c *content) sum(s *items, limit uint64, ofItem func(key, value []byte) uint64) (sum uint64) {
	var key, value []byte
	c.each(limit, func(i uint64) {
		key = s.key(i, key)
		sum += ofItem(key, s.value(i, c.version(i), &value))
	})
	return sum
}
