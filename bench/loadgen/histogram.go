package main

import (
	"math/bits"
	"time"
)

// steps is the number of buckets for each power of two: a value is known to within 1/128 of itself.
const steps = 128

// histogram counts durations in buckets whose width grows with their value, like HdrHistogram: its size does not depend
// on the number of samples, and no sample is left out.
type histogram struct {
	counts [64 * steps]uint64
	total  uint64
	max    time.Duration
}

func (h *histogram) add(took time.Duration) {
	took = max(took, 0)
	h.counts[bucket(uint64(took))]++
	h.total++
	h.max = max(h.max, took)
}

func (h *histogram) merge(other *histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// percentile is the smallest bucket's value that so large a share of the samples does not exceed, in milliseconds.
func (h *histogram) percentile(share float64) float64 {
	wanted, seen := uint64(share*float64(h.total)), uint64(0)
	for i, count := range h.counts {
		seen += count
		if count > 0 && seen > wanted {
			return min(float64(upper(i)), float64(h.max)) / 1e6
		}
	}
	return float64(h.max) / 1e6
}

func bucket(value uint64) int {
	if value < steps {
		return int(value)
	}
	shift := bits.Len64(value) - bits.Len64(steps)
	return (shift+1)*steps + int(value>>shift) - steps
}

// upper is the largest value of a bucket.
func upper(i int) uint64 {
	if i < steps {
		return uint64(i)
	}
	shift := i/steps - 1
	return (uint64(i%steps+steps)+1)<<shift - 1
}
