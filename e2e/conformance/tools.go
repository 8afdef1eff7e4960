//go:build tools

// Package conformance pins the programs that run.py builds.
package conformance

import (
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/test/e2e"
)
