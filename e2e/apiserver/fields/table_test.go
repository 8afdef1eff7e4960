package main

import (
	"slices"
	"testing"
)

func TestMerge(t *testing.T) {
	of := func(fields ...field) table {
		return table{"core/v1.Pod": {form: "Object", apiVersions: []string{"v1"}, fields: fields}}
	}
	name, spec := field{number: 1, name: "name", of: "string"}, field{number: 2, name: "spec", of: "core/v1.PodSpec"}
	gone := field{number: 3, name: "gone", of: "bool"}

	newer := of(name, spec)
	if contradictions := newer.merge(of(name, gone, spec)); contradictions != nil {
		t.Fatal(contradictions)
	}
	gone.isPartial = true
	if merged := newer["core/v1.Pod"].fields; !slices.Equal(merged, []field{name, gone, spec}) {
		t.Fatal(merged)
	}
	for _, other := range []field{
		{number: 1, name: "other", of: "string"},
		{number: 1, name: "name", of: "bytes"},
		{number: 1, name: "name", shape: "Repeated", of: "string"},
		{number: 7, name: "name", of: "string"},
	} {
		if contradictions := of(name).merge(of(other)); len(contradictions) != 1 {
			t.Fatal(other, contradictions)
		}
	}
	if contradictions := of(name).merge(of(field{number: 1, name: "name", omit: "Empty", shape: "Optional", of: "string"})); contradictions != nil {
		t.Fatal(contradictions)
	}
}

func TestMethod(t *testing.T) {
	for name, expected := range map[string]string{
		"nodeName": "node_name", "podIP": "pod_ip", "podIPs": "pod_ips", "clusterIPs": "cluster_ips", "hostIPC": "host_ipc",
		"externalIPsOfNode": "external_ips_of_node", "nonResourceURLs": "non_resource_urls", "awsElasticBlockStore": "aws_elastic_block_store",
		"currentCPUUtilizationPercentage": "current_cpu_utilization_percentage", "type": "type_", "$ref": "ref_", "bytes": "bytes_",
		"x-kubernetes-list-type": "x_kubernetes_list_type", "jSONSchemas": "json_schemas", "VolumeSource": "volume_source",
	} {
		if found := method(name); found != expected {
			t.Errorf("%s: %s", name, found)
		}
	}
}
