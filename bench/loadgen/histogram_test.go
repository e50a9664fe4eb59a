package main

import (
	"testing"
	"time"
)

func TestAPercentileIsKnownToWithinABucket(t *testing.T) {
	var h histogram
	for i := 1; i <= 100_000; i++ {
		h.add(time.Duration(i) * time.Microsecond)
	}
	for _, c := range []struct{ share, wanted float64 }{{0.5, 50}, {0.99, 99}, {0.999, 99.9}} {
		if got := h.percentile(c.share); got < c.wanted || got > c.wanted*(1+1.0/steps)+0.001 {
			t.Errorf("percentile %v is %v ms, wanted %v", c.share, got, c.wanted)
		}
	}
}

func TestEveryValueLiesInItsBucket(t *testing.T) {
	for value := uint64(0); value < 1<<40; value = value*5/4 + 1 {
		i := bucket(value)
		if value > upper(i) || (i > 0 && value <= upper(i-1)) {
			t.Errorf("%d is in bucket %d, which ends at %d", value, i, upper(i))
		}
	}
}

func TestMergedHistogramsHoldAllSamples(t *testing.T) {
	var one, other histogram
	one.add(time.Millisecond)
	other.add(time.Second)
	one.merge(&other)
	if one.total != 2 || one.max != time.Second || one.percentile(0.99) != 1000 {
		t.Errorf("%d samples, at most %v", one.total, one.max)
	}
}

func TestARequestOfATemplateIsNewAndCarriesItsStamp(t *testing.T) {
	made := &template{encoded: []byte("id-" + idMark + " " + stampMark + "body")}
	made.ids, made.stamps = positions(made.encoded, idMark), positions(made.encoded, stampMark)
	first := string(made.next(42))
	second := made.next(43)
	if first[:15] == string(second[:15]) || stampOf(second[16:]) != 43 {
		t.Errorf("%q, then %q", first, second)
	}
}
