package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The keys by which `listwatch watch --diff` names the items of a list are those of strategic merge patches.
func TestMergeKeys(t *testing.T) {
	text, err := os.ReadFile(root + "/../crates/cli/src/cluster/watch/diff/merge_key.rs")
	if err != nil {
		t.Fatal(err)
	}
	found, seen := 0, map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				field := of.Field(i)
				if key := field.Tag.Get("patchMergeKey"); key != "" {
					found++
					name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
					isCommon := key == "name" || key == "type" || key == "key"
					if !isCommon && !strings.Contains(string(text), `("`+name+`", "`+key+`")`) {
						t.Errorf("%v: no key %s of %s", of, key, name)
					}
				}
				visit(field.Type)
			}
		}
	}
	for _, kind := range kinds(newScheme()) {
		visit(kind.goType)
	}
	if found < 50 {
		t.Errorf("only %d fields have a key", found)
	}
}
