package main

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

// writeQuantitySums records the sums of quantities: the terms, and their sum as Kubernetes writes it.
func writeQuantitySums() {
	texts := []string{
		"0", "00", "-0", "1", "+1", "-1", "1.", ".5", "0.5", "1.5", "100m", "1500m", "1000m", "-100m", "1u", "1n", "999999999n",
		"0.1n", "-0.1n", "1.0000000001", "0.5m", "0.3u", "1k", "2000", "1500", "1024", "1023", "1025", "1M", "1.5G", "1T", "1P", "1E",
		"9E", "1Ki", "1.5Ki", "0.5Ki", "0.1Ki", "0.0001Ki", "512Mi", "1024Mi", "1500Mi", "1Gi", "1.1Gi", "-1Gi", "2Ti", "1Pi", "1Ei",
		"7Ei", "8Ei", "9999999Ei", "99999999999999999999Ei", "-9Ei", "1e3", "1E3", "1e-3", "15e2", "1e0", "1.5e9", "123456789e-9",
		"12e18", " 1", "000123", "9223372036854775807", "9223372036854775808", "100000000000000000000", "1048576", "1073741824k",
		"128974848", "129e6", "129M", "128974848000m", "123Mi", "0.000000001Ki", "3.14159265358979",
	}
	invalid := []string{"", "abc", "1x", "1 Gi", "1Gi ", "1ki", "1Zi", "1e", "e", "1e1.5", "1.2.3", "--1", "1-", "0x10", "1mi", "1MiB", "∞", "1_000"}
	var cases [][2]any
	add := func(terms []string) {
		sum, isValid := resource.Quantity{}, true
		for _, term := range terms {
			var quantity resource.Quantity
			if err := quantity.UnmarshalJSON([]byte(term)); err != nil {
				isValid = false
				break
			}
			sum.Add(quantity)
		}
		if isValid {
			cases = append(cases, [2]any{terms, sum.String()})
		} else {
			cases = append(cases, [2]any{terms, nil})
		}
	}
	for _, text := range append(texts, invalid...) {
		add([]string{text})
	}
	random := rand.New(rand.NewSource(1))
	for range 500 {
		var terms []string
		for range 2 + random.Intn(5) {
			terms = append(terms, texts[random.Intn(len(texts))])
		}
		add(terms)
	}
	var out bytes.Buffer
	out.WriteString("[\n")
	for i, each := range cases {
		line, err := json.Marshal(each)
		must(err)
		out.Write(line)
		if i < len(cases)-1 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	out.WriteString("]\n")
	must(os.WriteFile(root+"/crates/cli/src/quantity_sums.json", out.Bytes(), 0o644))
}
