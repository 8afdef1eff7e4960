package main

import (
	"maps"
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

func TestClasses(t *testing.T) {
	meta := field{number: 1, name: "metadata", of: "meta/v1.ObjectMeta"}
	pods := func(version, of string, fields ...field) table {
		return table{
			"core/" + version + ".Pod":  {form: "Object", fields: append([]field{meta, {number: 2, name: "spec", of: "core/" + version + ".Spec"}}, fields...)},
			"core/" + version + ".Spec": {form: "Object", fields: []field{{number: 1, name: "node", of: of}}},
		}
	}
	all := table{"meta/v1.ObjectMeta": {form: "Object"}, "meta/v1.Other": {form: "Object"}}
	for _, some := range []table{
		pods("v1", "string"), pods("v2", "string"), pods("v3", "bytes"), pods("v4", "string", field{number: 3, name: "status", of: "bool"}),
	} {
		maps.Copy(all, some)
	}
	classes := all.classes()
	expected := map[string]int{
		"core/v1.Pod": 0, "core/v1.Spec": 1, "core/v2.Pod": 0, "core/v2.Spec": 1, "core/v3.Pod": 2, "core/v3.Spec": 3,
		"core/v4.Pod": 4, "core/v4.Spec": 1, "meta/v1.ObjectMeta": 5, "meta/v1.Other": 6,
	}
	if !maps.Equal(classes, expected) {
		t.Fatal(classes)
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
