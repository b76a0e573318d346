// Package generate makes the bytes of every workload, the same as crates/esker-bench-api/src/generate does.
package generate

// From a seed and a number:
//
//	Word(seed, c) = mix64(seed + golden * (c + 1))
//	fill(seed)    = Word(seed, 0), Word(seed, 1), ...   8 bytes each, little-endian, the last one cut
//
// generate_test.go pins every stream by the figures that also pin the Rust generators.

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

const golden = 0x9E3779B97F4A7C15

func Mix64(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// Unmix64 is the inverse of Mix64.
func Unmix64(z uint64) uint64 {
	z = (z ^ (z >> 31) ^ (z >> 62)) * 0x319642B2D24D8EC3
	z = (z ^ (z >> 27) ^ (z >> 54)) * 0x96DE1B173F119089
	return z ^ (z >> 30) ^ (z >> 60)
}

func Word(seed, counter uint64) uint64 {
	return Mix64(seed + golden*(counter+1))
}

// FillFrom fills bytes with the stream of seed from word first on.
func FillFrom(seed, first uint64, bytes []byte) {
	for ; len(bytes) >= 8; first++ {
		binary.LittleEndian.PutUint64(bytes, Word(seed, first))
		bytes = bytes[8:]
	}
	if len(bytes) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], Word(seed, first))
		copy(bytes, last[:])
	}
}

func Fill(seed uint64, bytes []byte) { FillFrom(seed, 0, bytes) }

// FillHalfRedundant fills the first half of bytes with the stream of seed and repeats it in the second.
func FillHalfRedundant(seed uint64, bytes []byte) {
	half := (len(bytes) + 1) / 2
	Fill(seed, bytes[:half])
	copy(bytes[half:], bytes)
}

// decimal writes number right-aligned, zeros in front.
func decimal(number uint64, digits []byte) {
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = '0' + byte(number%10)
		number /= 10
	}
}

// Rng is a seeded sequence of random numbers.
type Rng struct{ seed, counter uint64 }

func NewRng(seed uint64) *Rng { return &Rng{seed: seed} }

func (r *Rng) Next() uint64 {
	w := Word(r.seed, r.counter)
	r.counter++
	return w
}

func (r *Rng) Below(n uint64) uint64 {
	high, _ := bits.Mul64(r.Next(), n)
	return high
}

func (r *Rng) Fraction() float64 {
	return float64(r.Next()>>11) * (1.0 / (1 << 53))
}

// Zipf draws ranks with weight k^-s, octave by octave; distribution.rs says how.
type Zipf struct {
	s          float64
	cumulative [64]float64
}

func NewZipf(s float64) *Zipf {
	z := &Zipf{s: s}
	sum := 0.0
	for octave := range z.cumulative {
		sum += math.Exp2(float64(octave) * (1 - s))
		z.cumulative[octave] = sum
	}
	return z
}

// rank is from 1 to n.
func (z *Zipf) Rank(r *Rng, n uint64) uint64 {
	octaves := bits.Len64(n)
	for {
		point := r.Fraction() * z.cumulative[octaves-1]
		octave := 0
		for octave < octaves-1 && z.cumulative[octave] <= point {
			octave++
		}
		first := uint64(1) << octave
		rank := first + r.Below(first)
		ratio := float64(first) / float64(rank)
		accepted := ratio
		if z.s != 1 {
			accepted = math.Pow(ratio, z.s)
		}
		if rank <= n && r.Fraction() < accepted {
			return rank
		}
	}
}

// Distribution draws a number below n.
type Distribution func(r *Rng, n uint64) uint64

// Uniform draws each number alike.
func Uniform(r *Rng, n uint64) uint64 { return r.Below(n) }

// Zipfian draws few numbers most of the time, scattered over all of them. distribution.rs describes
// numbersMax.
func (z *Zipf) Zipfian(numbersMax uint64) Distribution {
	return func(r *Rng, n uint64) uint64 {
		for {
			if number := Mix64(z.Rank(r, n)) % numbersMax; number < n {
				return number
			}
		}
	}
}

// Latest draws the highest numbers most often.
func (z *Zipf) Latest(r *Rng, n uint64) uint64 { return n - z.Rank(r, n) }

// Order visits each number below n once; order.rs says how.
type Order struct{ n, stride, next uint64 }

func NewOrder(n, start uint64) Order {
	stride := uint64(float64(n) * 0.618033988749895)
	for stride < n && gcd(stride, n) != 1 {
		stride++
	}
	if stride >= n {
		stride = 1
	}
	return Order{n, max(stride, 1), start % n}
}

func (o *Order) Take() uint64 {
	current := o.next
	o.next += o.stride
	if o.next >= o.n {
		o.next -= o.n
	}
	return current
}

// SkipTo is the order from its steps-th number on.
func (o Order) SkipTo(steps uint64) Order {
	high, low := bits.Mul64(o.stride, steps)
	low, carry := bits.Add64(low, o.next, 0)
	_, remainder := bits.Div64((high+carry)%o.n, low, o.n)
	return Order{o.n, o.stride, remainder}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Items are those of suite redb: 24-byte random keys, 150-byte random values.
type Items struct{ Seed uint64 }

const (
	ItemKeyBytes   = 24
	ItemValueBytes = 150
	wordsPerItem   = 32
	itemKeyWords   = 3
)

func (s Items) Key(i uint64, key *[ItemKeyBytes]byte) []byte {
	FillFrom(s.Seed, i*wordsPerItem, key[:])
	return key[:]
}

func (s Items) Value(i uint64, value *[ItemValueBytes]byte) []byte {
	FillFrom(s.Seed, i*wordsPerItem+itemKeyWords, value[:])
	return value[:]
}

// Ints are those of suite int: u32 keys that never come twice, u64 values, both big-endian.
type Ints struct{ Seed uint64 }

func (s Ints) Key(i uint32, key *[4]byte) []byte {
	z := i ^ uint32(Word(s.Seed, 0))
	z = (z ^ (z >> 16)) * 0x85EBCA6B
	z = (z ^ (z >> 13)) * 0xC2B2AE35
	binary.BigEndian.PutUint32(key[:], z^(z>>16))
	return key[:]
}

func (s Ints) Value(i uint32, value *[8]byte) []byte {
	binary.BigEndian.PutUint64(value[:], Word(s.Seed, uint64(i)+1))
	return value[:]
}

// Pool lends values that cost nothing to make: slices of 8 MiB of random bytes.
type Pool struct {
	seed  uint64
	bytes []byte
}

const PoolBytes = 8 << 20

func NewPool(seed uint64) *Pool {
	p := &Pool{seed, make([]byte, PoolBytes)}
	Fill(seed, p.bytes)
	return p
}

func (p *Pool) Value(i uint64, size int) []byte {
	at := Word(p.seed, PoolBytes/8+i) % uint64(PoolBytes-size+1)
	return p.bytes[at : at+uint64(size)]
}

// BadgerItems are the items of suite badger: keys vsz=VVVVV-k=KKKKKKKKKK, values of one size from a pool.
type BadgerItems struct {
	seed       uint64
	valueBytes int
	pool       *Pool
}

const BadgerKeyBytes = 22

func NewBadgerItems(seed uint64, valueBytes int) *BadgerItems {
	return &BadgerItems{seed, valueBytes, NewPool(seed)}
}

func (b *BadgerItems) Draws() *Rng { return NewRng(b.seed ^ 0xBAD6E400) }

func (b *BadgerItems) Key(k uint64, key *[BadgerKeyBytes]byte) []byte {
	copy(key[:], "vsz=00000-k=0000000000")
	decimal(uint64(b.valueBytes), key[4:9])
	decimal(k, key[12:])
	return key[:]
}

func (b *BadgerItems) Value(k uint64) []byte { return b.pool.Value(k, b.valueBytes) }

// YcsbRecords are the items of suite ycsb: key "user" and 20 digits, 1000 random bytes; a version counts the
// updates.
type YcsbRecords struct{ Seed uint64 }

const (
	YcsbKeyBytes   = 24
	YcsbValueBytes = 1000
)

func (y YcsbRecords) Key(i uint64, key *[YcsbKeyBytes]byte) []byte {
	copy(key[:], "user")
	decimal(Mix64(y.Seed+i), key[4:])
	return key[:]
}

func (y YcsbRecords) Value(i, version uint64, value *[YcsbValueBytes]byte) []byte {
	Fill(Word(Word(y.Seed, i), version), value[:])
	return value[:]
}

// Item is the number of the record with this key, if there can be one.
func (y YcsbRecords) Item(key []byte) (uint64, bool) {
	digits, found := bytes.CutPrefix(key, []byte("user"))
	number, err := strconv.ParseUint(string(digits), 10, 64)
	return Unmix64(number) - y.Seed, found && err == nil
}

// StorageItems are the items of suite storage-bench: 8-byte keys, values that compress to a half; a version
// counts the overwrites.
type StorageItems struct {
	Seed       uint64
	Sequential bool
}

const StorageKeyBytes = 8

func (s StorageItems) Key(i uint64, key *[StorageKeyBytes]byte) []byte {
	if !s.Sequential {
		i = Mix64(s.Seed + i)
	}
	binary.BigEndian.PutUint64(key[:], i)
	return key[:]
}

func (s StorageItems) Value(i, version uint64, value []byte) []byte {
	FillHalfRedundant(Word(Word(s.Seed, i), version), value)
	return value
}

// Item is the number of the item with this key.
func (s StorageItems) Item(key []byte) (uint64, bool) {
	if len(key) != StorageKeyBytes {
		return 0, false
	}
	number := binary.BigEndian.Uint64(key)
	if s.Sequential {
		return number, true
	}
	return Unmix64(number) - s.Seed, true
}

// KeyspaceItems are the items of suite keyspaces: StorageItems with keys in random order. The number of an
// item determines its keyspace.
type KeyspaceItems struct {
	StorageItems
	Keyspaces uint32
}

// keyspaceDraws sets the draws apart from the words that values are made of.
const keyspaceDraws = 0x5EED_0F5A_CE5A_1107

func NewKeyspaceItems(seed uint64, keyspaces uint32) KeyspaceItems {
	return KeyspaceItems{StorageItems{Seed: seed}, keyspaces}
}

// Keyspace is that of item i.
func (k KeyspaceItems) Keyspace(i uint64) uint32 {
	high, _ := bits.Mul64(Word(k.Seed^keyspaceDraws, i), uint64(k.Keyspaces))
	return uint32(high)
}

// ObigKey is a key of suite obigstore.
type ObigKey [16]byte

// ObigValue fills value with the value that key always has.
func ObigValue(key *ObigKey, value []byte) []byte {
	FillHalfRedundant(Checksum(key[:], nil), value)
	return value
}

// ObigSequential is sequential key i: 16 decimal digits.
func ObigSequential(i uint64) (key ObigKey) {
	decimal(i, key[:])
	return key
}

// ObigRandom is random key i of the stream of seed; no key comes twice.
func ObigRandom(seed, i uint64) (key ObigKey) {
	binary.BigEndian.PutUint64(key[:8], Mix64(seed+i))
	binary.BigEndian.PutUint64(key[8:], Mix64(seed^bits.RotateLeft64(i, 32)))
	return key
}

// Hotspots are obigstore's: obigstore.rs says how they go.
type Hotspots struct {
	rng   *Rng
	stay  float64
	spots []hotspot
}

type hotspot struct{ high, low, keys uint64 }

func NewHotspots(seed uint64, stay float64, spotsLog2 int) *Hotspots {
	h := &Hotspots{NewRng(seed), stay, make([]hotspot, 1<<spotsLog2)}
	for i := range h.spots {
		h.spots[i] = h.fresh()
	}
	return h
}

func (h *Hotspots) fresh() hotspot { return hotspot{high: h.rng.Next(), low: h.rng.Next()} }

func (spot hotspot) key(n uint64) (key ObigKey) {
	low, carry := bits.Add64(spot.low, n, 0)
	binary.BigEndian.PutUint64(key[:8], spot.high+carry)
	binary.BigEndian.PutUint64(key[8:], low)
	return key
}

// NextKey is the next key to write, and whether it was never written.
func (h *Hotspots) NextKey() (key ObigKey, isNew bool) {
	spot := &h.spots[h.rng.Below(uint64(len(h.spots)))]
	if h.rng.Fraction() >= h.stay {
		*spot = h.fresh()
	}
	if spot.keys > 0 && h.rng.Next()&1 == 1 {
		return spot.key(h.rng.Below(spot.keys)), false
	}
	spot.keys++
	return spot.key(spot.keys - 1), true
}

const (
	smallBytes     = 1024
	cacheLineBytes = 64
)

// Probe is a cheap checksum of a value: its length, its first and last eight bytes, and eight of every 64
// bytes of a value longer than 1,024.
func Probe(value []byte) uint64 {
	if len(value) >= 8 {
		first := binary.LittleEndian.Uint64(value)
		last := binary.LittleEndian.Uint64(value[len(value)-8:])
		ends := first + bits.RotateLeft64(last, 23) + uint64(len(value))
		if len(value) <= smallBytes {
			return ends
		}
		sum := ends
		for line := value; len(line) >= cacheLineBytes; line = line[cacheLineBytes:] {
			sum = bits.RotateLeft64(sum, 7) ^ binary.LittleEndian.Uint64(line)
		}
		return sum
	}
	sum := uint64(len(value))
	for _, b := range value {
		sum = bits.RotateLeft64(sum, 8) ^ uint64(b)
	}
	return sum
}

// Checksum covers all bytes of an item.
func Checksum(key, value []byte) uint64 {
	sum := uint64(len(key))
	for _, bytes := range [][]byte{key, value} {
		for ; len(bytes) >= 8; bytes = bytes[8:] {
			sum = bits.RotateLeft64((sum^binary.LittleEndian.Uint64(bytes))*golden, 29)
		}
		if len(bytes) > 0 {
			var last [8]byte
			copy(last[:], bytes)
			sum = bits.RotateLeft64((sum^binary.LittleEndian.Uint64(last[:]))*golden, 29)
		}
	}
	return sum
}
