//go:build tools

// Package h2spec pins the version of h2spec that tests/http2/test_h2spec.py builds.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
