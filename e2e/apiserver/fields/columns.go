package main

import (
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/discovery"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// writeColumns writes the columns of the Tables that the crate listwatch-tables prints.
func writeColumns() {
	generator := printers.NewTableGenerator().With(internalversion.AddHandlers)
	out := strings.Builder{}
	out.WriteString("//! The columns of Tables of built-in kinds. Written by e2e/apiserver/fields, from the printers of Kubernetes.\n\n")
	out.WriteString("use crate::cell::Column;\n")
	for _, kind := range []struct {
		name   string
		object runtime.Object
	}{
		{"CONFIG_MAP", &core.ConfigMap{}},
		{"CRON_JOB", &batch.CronJob{}},
		{"DAEMON_SET", &apps.DaemonSet{}},
		{"DEPLOYMENT", &apps.Deployment{Spec: apps.DeploymentSpec{Selector: &metav1.LabelSelector{}}}},
		{"ENDPOINTS", &core.Endpoints{}},
		{"ENDPOINT_SLICE", &discovery.EndpointSlice{}},
		{"EVENT", &core.Event{}},
		{"HORIZONTAL_POD_AUTOSCALER", &autoscaling.HorizontalPodAutoscaler{}},
		{"INGRESS", &networking.Ingress{}},
		{"JOB", &batch.Job{}},
		{"LEASE", &coordination.Lease{}},
		{"NAMESPACE", &core.Namespace{}},
		{"NETWORK_POLICY", &networking.NetworkPolicy{}},
		{"NODE", &core.Node{}},
		{"PERSISTENT_VOLUME", &core.PersistentVolume{}},
		{"PERSISTENT_VOLUME_CLAIM", &core.PersistentVolumeClaim{}},
		{"POD", &core.Pod{}},
		{"POD_DISRUPTION_BUDGET", &policy.PodDisruptionBudget{}},
		{"REPLICA_SET", &apps.ReplicaSet{}},
		{"SECRET", &core.Secret{}},
		{"SERVICE", &core.Service{}},
		{"SERVICE_ACCOUNT", &core.ServiceAccount{}},
		{"STATEFUL_SET", &apps.StatefulSet{}},
	} {
		table, err := generator.GenerateTable(kind.object, printers.GenerateOptions{Wide: true})
		must(err)
		fmt.Fprintf(&out, "\npub static %s: &[Column] = &[\n", kind.name)
		for _, column := range table.ColumnDefinitions {
			fmt.Fprintf(&out, "    Column::built_in(%s, %s, %s, %s, %d),\n", rustText(column.Name), rustText(column.Type),
				rustText(column.Format), rustText(column.Description), column.Priority)
		}
		out.WriteString("];\n")
	}
	must(os.WriteFile(root+"/crates/tables/src/columns.rs", []byte(out.String()), 0o644))
}

// rustText returns a literal of Rust.
func rustText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
