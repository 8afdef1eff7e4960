// Fields writes what this repository knows of the fields of Kubernetes objects, from the struct tags of the Go types:
//
//	go run ./fields
//
// in the directory of this module writes src/fields/table.txt, and the JSON that Go makes of the recorded bodies and of
// objects filled at random, against which tests/core/json_form.rs holds the JSON form of this crate.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

const root = "../.."

func main() {
	log.SetFlags(0)
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme, metricsv1beta1.AddToScheme,
		metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		must(add(all))
	}
	kinds := kinds(all)
	must(os.WriteFile(root+"/src/fields/table.txt", table(kinds), 0o644))
	must(os.MkdirAll(root+"/tests/core/json_form", 0o755))
	writeRecorded(all)
	writeFilled(kinds)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// kind is an object that a server serves: neither a list nor the parameters of a request.
type kind struct {
	schema.GroupVersionKind
	goType reflect.Type
}

func kinds(scheme *runtime.Scheme) []kind {
	var kinds []kind
	for gvk, t := range scheme.AllKnownTypes() {
		if _, isList := t.FieldByName("Items"); isList || strings.HasSuffix(gvk.Kind, "Options") || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		// Every group registers the types of meta/v1.
		if t.PkgPath() == metaPackage {
			switch gvk.GroupVersion().String() + " " + gvk.Kind {
			case "v1 Status", "meta.k8s.io/v1 PartialObjectMetadata", "meta.k8s.io/v1beta1 PartialObjectMetadata":
			default:
				continue
			}
		}
		if gvk.Kind != t.Name() {
			log.Fatalf("%v is a %v", gvk, t)
		}
		kinds = append(kinds, kind{gvk, t})
	}
	slices.SortFunc(kinds, func(a, b kind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

var metaPackage = reflect.TypeFor[metav1.ObjectMeta]().PkgPath()

// Messages whose JSON is not an object of their fields.
var forms = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():                                  "Time",
	reflect.TypeFor[metav1.MicroTime]():                             "MicroTime",
	reflect.TypeFor[metav1.Duration]():                              "Duration",
	reflect.TypeFor[metav1.FieldsV1]():                              "Raw",
	reflect.TypeFor[runtime.RawExtension]():                         "Raw",
	reflect.TypeFor[apiextensionsv1.JSON]():                         "Raw",
	reflect.TypeFor[resource.Quantity]():                            "Quantity",
	reflect.TypeFor[intstr.IntOrString]():                           "IntOrString",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       "Or",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        "Or",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): "Or",
}

const head = `# Kubernetes objects by field number, read off the struct tags of the Go types of
#
%s#
# by "go run ./fields" in e2e/apiserver, which writes this file. Lines:
#
#   package NAME                      of the messages that follow
#   message NAME [=FORM] [VERSION]... FORM when its JSON is not an object; the apiVersions in which it is a kind
#   NUMBER NAME[?][!] TYPE            a field, in the order of JSON; ? omitempty, ! omitzero; the name "." is an inlined message
#
# TYPE is a scalar of protobuf or a message (of this package unless it names another); before it * is optional, [] repeated,
# {} a map with string keys.
`

func table(kinds []kind) []byte {
	messages := map[string]map[string]string{} // package, name, text
	versions := map[reflect.Type][]string{}
	for _, kind := range kinds {
		versions[kind.goType] = append(versions[kind.goType], kind.GroupVersion().String())
	}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		text, fields := new(strings.Builder), []reflect.Type(nil)
		fmt.Fprintf(text, "message %s", t.Name())
		if form := form(t); form != "" {
			fmt.Fprintf(text, " =%s", form)
		}
		for _, version := range versions[t] {
			fmt.Fprintf(text, " %s", version)
		}
		text.WriteByte('\n')
		switch {
		case t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[metav1.MicroTime]():
			text.WriteString("1 seconds int64\n2 nanos int32\n")
		case t == reflect.TypeFor[resource.Quantity]():
			text.WriteString("1 string string\n")
		case t.Kind() == reflect.Slice:
			text.WriteString("1 items []string\n")
		default:
			for i := range t.NumField() {
				if line, message := field(t, t.Field(i)); line != "" {
					text.WriteString(line)
					if message != nil {
						fields = append(fields, message)
					}
				}
			}
		}
		in := messages[packageOf(t)]
		if in == nil {
			in = map[string]string{}
			messages[packageOf(t)] = in
		}
		if in[t.Name()] == "" {
			in[t.Name()] = text.String()
			for _, message := range fields {
				visit(message)
			}
		} else if in[t.Name()] != text.String() {
			log.Fatalf("two messages %v", t)
		}
	}
	for _, kind := range kinds {
		visit(kind.goType)
	}

	var out bytes.Buffer
	fmt.Fprintf(&out, head, modules(kinds))
	for _, name := range sorted(messages) {
		fmt.Fprintf(&out, "package %s\n", name)
		for _, message := range sorted(messages[name]) {
			out.WriteString(messages[name][message])
		}
	}
	return out.Bytes()
}

func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// modules are those that the kinds are of, with their versions.
func modules(kinds []kind) string {
	info, _ := debug.ReadBuildInfo()
	var text strings.Builder
	for _, module := range info.Deps {
		if slices.ContainsFunc(kinds, func(kind kind) bool { return strings.HasPrefix(kind.goType.PkgPath(), module.Path+"/") }) {
			version := module.Version
			if module.Replace != nil {
				version = module.Replace.Version
			}
			fmt.Fprintf(&text, "#   %s %s\n", module.Path, version)
		}
	}
	return text.String()
}

// packageOf is the end of the path: core/v1.
func packageOf(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

func form(t reflect.Type) string {
	if t.Kind() == reflect.Slice {
		return "Items"
	}
	form, marshals := forms[t], t.Implements(reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]())
	if (form != "") != (marshals || t == reflect.TypeFor[metav1.FieldsV1]()) {
		log.Fatalf("%v has a JSON of its own: %v, known as %q", t, marshals, form)
	}
	return form
}

// field is the line of a field, and its message if it is one; "" for what protobuf does not have.
func field(parent reflect.Type, f reflect.StructField) (string, reflect.Type) {
	if f.Anonymous && f.Type == reflect.TypeFor[metav1.TypeMeta]() {
		return "", nil // from the envelope
	}
	wire := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(wire) < 2 {
		if parent == reflect.TypeFor[runtime.RawExtension]() {
			return "", nil // Object, for programs
		}
		log.Fatalf("%v.%s has no number", parent, f.Name)
	}
	number := wire[1]

	tag := strings.Split(f.Tag.Get("json"), ",")
	name := tag[0]
	if form(parent) != "" {
		_, name, _ = strings.Cut(f.Tag.Get("protobuf"), "name=")
		name, _, _ = strings.Cut(name, ",")
	} else if name == "-" {
		log.Fatalf("%v.%s is not in JSON", parent, f.Name)
	} else if name == "" && f.Anonymous {
		name = "."
	} else if name == "" {
		name = f.Name
	}
	for _, option := range tag[1:] {
		switch option {
		case "omitempty":
			name += "?"
		case "omitzero":
			if form(f.Type) != "Time" {
				log.Fatalf("%v.%s is not a time", parent, f.Name)
			}
			name += "!"
		case "inline":
		default:
			log.Fatalf("%v.%s is %q", parent, f.Name, option)
		}
	}

	t, shape := f.Type, ""
	switch {
	case isMessage(t):
	case t.Kind() == reflect.Pointer:
		t, shape = t.Elem(), "*"
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		t, shape = t.Elem(), "[]"
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		t, shape = t.Elem(), "{}"
	}
	scalar := scalar(t)
	if scalar == "" && !isMessage(t) {
		log.Fatalf("%v.%s is a %v", parent, f.Name, f.Type)
	}
	if scalar == "" && form(t) == "Items" && shape != "{}" {
		log.Fatalf("%v.%s has its items outside a map", parent, f.Name)
	}
	if scalar != "" {
		return fmt.Sprintf("%s %s %s%s\n", number, name, shape, scalar), nil
	}
	message := t.Name()
	if packageOf(t) != packageOf(parent) {
		message = packageOf(t) + "." + message
	}
	return fmt.Sprintf("%s %s %s%s\n", number, name, shape, message), t
}

// isMessage: structs, and slices that have a message of their own around their items.
func isMessage(t reflect.Type) bool {
	_, marshals := reflect.New(t).Interface().(interface{ Unmarshal([]byte) error })
	if t.Kind() == reflect.Slice && marshals && t.Elem().Kind() != reflect.String {
		log.Fatalf("%v has other items than strings", t)
	}
	return marshals
}

// scalar is its name in protobuf. (The tag is no help: it says bytes of some integers.)
func scalar(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Float64:
		return "double"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
	}
	return ""
}
