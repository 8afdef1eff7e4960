package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"log"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

var magic = []byte("k8s\x00")

type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// newScheme returns a scheme with the types of this module's own release.
func newScheme() *runtime.Scheme {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme, metricsv1beta1.AddToScheme,
		metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		must(add(all))
	}
	return all
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

// writeRecorded writes the items of all recorded lists as lines of JSON, the lists in the order of their names.
func writeRecorded(scheme *runtime.Scheme) {
	paths, err := filepath.Glob(root + "/fixtures/*.pb")
	must(err)
	var lines bytes.Buffer
	for _, path := range paths {
		body, err := os.ReadFile(path)
		must(err)
		var unknown runtime.Unknown
		// pods-rv0.pb is pods.pb again, byte for byte.
		if !bytes.HasPrefix(body, magic) || unknown.Unmarshal(body[len(magic):]) != nil || filepath.Base(path) == "pods-rv0.pb" {
			continue
		}
		gvk := schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind)
		if !strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		list, err := scheme.New(gvk)
		must(err)
		must(list.(protobuf).Unmarshal(unknown.Raw))
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		must(meta.EachListItem(list, func(item runtime.Object) error {
			writeLine(&lines, gvk, item)
			return nil
		}))
	}
	writeGzip("recorded.ndjson.gz", lines.Bytes())
}

// writeFilled writes, for each kind, a list of objects from empty to full, and more objects until every field was set once:
// as protobuf, with the length before each body, and as lines of the JSON that Go prints for the decoded objects.
func writeFilled(kinds []kind, t table) {
	var bodies, lines bytes.Buffer
	unset := map[string]bool{}
	for i, kind := range kinds {
		if kind.Version == "v1beta1" && kind.Group == "meta.k8s.io" {
			continue // its list has another layout, and is recorded
		}
		var objects [][]byte
		densities := []float64{0, 0.3, 0.7}
		for seed := 0; seed < len(densities) || hasAny(unset); seed++ {
			density := 0.95
			if seed < len(densities) {
				density = densities[seed]
			}
			if seed == 1000 {
				log.Fatalf("%v: never set: %v", kind, unset)
			}
			filler := filler{rand.New(rand.NewSource(int64(i*1000 + seed))), density, map[reflect.Type]int{}, t, unset, false}
			object := reflect.New(kind.goType)
			filler.fill(object.Elem())
			if seed > len(densities) && !filler.news {
				continue
			}
			encoded, err := object.Interface().(protobuf).Marshal()
			must(err)
			objects = append(objects, encoded)
			read := reflect.New(kind.goType).Interface()
			must(read.(protobuf).Unmarshal(encoded))
			writeLine(&lines, kind.GroupVersionKind, read.(runtime.Object))
		}
		writeList(&bodies, runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, objects...)
	}
	writeGzip("filled.pb.gz", bodies.Bytes())
	writeGzip("filled.ndjson.gz", lines.Bytes())
}

// writeList writes the length and the body of a list of objects of this kind.
func writeList(bodies *bytes.Buffer, of runtime.TypeMeta, objects ...[]byte) {
	raw := []byte{0x0a, 0}
	for _, object := range objects {
		raw = append(binary.AppendUvarint(append(raw, 0x12), uint64(len(object))), object...)
	}
	unknown := runtime.Unknown{Raw: raw}
	unknown.APIVersion, unknown.Kind = of.APIVersion, of.Kind+"List"
	body, err := unknown.Marshal()
	must(err)
	must(binary.Write(bodies, binary.BigEndian, uint32(len(magic)+len(body))))
	bodies.Write(magic)
	bodies.Write(body)
}

func hasAny(unset map[string]bool) bool {
	for _, unset := range unset {
		if unset {
			return true
		}
	}
	return false
}

func writeLine(lines *bytes.Buffer, gvk schema.GroupVersionKind, object runtime.Object) {
	object.GetObjectKind().SetGroupVersionKind(gvk)
	line, err := json.Marshal(object)
	if err != nil {
		log.Fatalf("%v: %v", gvk, err)
	}
	lines.Write(line)
	lines.WriteByte('\n')
}

func writeGzip(name string, content []byte) {
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	must(err)
	_, err = writer.Write(content)
	must(err)
	must(writer.Close())
	must(os.WriteFile(root+"/tests/core/json_form/"+name, compressed.Bytes(), 0o644))
}

// filler fills values at random; density is the probability that a field is set.
type filler struct {
	*rand.Rand
	density float64
	within  map[reflect.Type]int
	table   table
	// By field of the structs so far: true if no object has a value in it.
	unset map[string]bool
	// True if this object is the first with a value in some field.
	news bool
}

var (
	texts      = []string{"a", "web-0", "", "<b>&amp;</b>", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "\u2028\u2029é世😀", "v1.2.3"}
	embedded   = []string{`{}`, ` { "f:a" : [ 1 , -0.5e+3 , true , null ] } `, `{"<&>":"\u2028\\\" ` + "\u2028\u2029" + ` \ud83d"}`, `{"z":1,"a":{"b":[]}}`, `{"a\\" : "\\\\" , "b" : " " }`, `{"k:<&>":{}}`}
	quantities = []string{"0", "1", "-3", "100m", "1500m", "1Gi", "1.5Gi", "128974848", "1e3", "1e-9", "0.5", "12345678901234567890"}
	durations  = []time.Duration{0, 1, 999, 1500, time.Millisecond, 1500 * time.Microsecond, time.Second, 90 * time.Second, -36 * time.Hour, 1001 * time.Millisecond, math.MinInt64, math.MaxInt64}
	doubles    = []float64{0, 1, -1.5, 0.1, 1e-6, 9.99e-7, 1e-10, 1e20, 1e21, -1e100, math.MaxFloat64, math.SmallestNonzeroFloat64, 123456789.25}
	integers   = []int64{0, 1, -1, 7, 8080, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
)

func pick[T any](f *filler, values []T) T { return values[f.Intn(len(values))] }

func (f *filler) fill(v reflect.Value) {
	if f.Float64() >= f.density && v.Kind() != reflect.Struct {
		return
	}
	f.set(v)
}

func (f *filler) set(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		if f.Float64() < f.density {
			*value = metav1.Unix(f.Int63n(9000*365*86400)-1900*365*86400, f.Int63n(1e9))
		}
		return
	case *metav1.MicroTime:
		if f.Float64() < f.density {
			*value = metav1.NewMicroTime(time.Unix(f.Int63n(9000*365*86400)-1900*365*86400, f.Int63n(1e9)))
		}
		return
	case *metav1.Duration:
		value.Duration = pick(f, durations)
		return
	case *resource.Quantity:
		if f.Float64() < f.density {
			*value = resource.MustParse(pick(f, quantities))
		}
		return
	case *intstr.IntOrString:
		*value = intstr.FromInt32(int32(pick(f, integers)))
		if f.Intn(2) == 0 {
			*value = intstr.FromString(pick(f, texts))
		}
		return
	case *metav1.FieldsV1:
		value.Raw = []byte(pick(f, embedded))
		return
	case *runtime.RawExtension:
		if f.Float64() < f.density {
			value.Raw = []byte(pick(f, embedded))
		}
		return
	case *apiextensionsv1.JSON:
		value.Raw = []byte(pick(f, append([]string{"", "null", `"text"`}, embedded...)))
		return
	case *[]byte:
		*value = make([]byte, f.Intn(8))
		f.Read(*value)
		return
	}

	switch v.Kind() {
	case reflect.String:
		v.SetString(pick(f, texts))
	case reflect.Bool:
		v.SetBool(f.Intn(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(pick(f, integers)) // truncated to what fits
	case reflect.Float64:
		v.SetFloat(pick(f, doubles))
	case reflect.Pointer:
		pointed := reflect.New(v.Type().Elem())
		if f.enter(pointed.Type().Elem(), pointed.Elem()) {
			v.Set(pointed)
		}
	case reflect.Slice:
		for range f.Intn(3) {
			element := reflect.New(v.Type().Elem()).Elem()
			if f.enter(element.Type(), element) {
				v.Set(reflect.Append(v, element))
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.Intn(4) {
			key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(pick(f, texts))
			if f.enter(element.Type(), element) {
				v.SetMapIndex(key, element)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			f.fill(v.Field(i))
			for f.isRequired(v.Type(), field) && isEmpty(v.Field(i)) {
				f.set(v.Field(i))
			}
			if field.Type != reflect.TypeFor[metav1.TypeMeta]() && field.Type.Size() > 0 {
				name := packageOf(v.Type().PkgPath()) + "." + v.Type().Name() + "." + field.Name
				if unset, known := f.unset[name]; unset || !known {
					f.unset[name] = v.Field(i).IsZero()
					f.news = f.news || !f.unset[name]
				}
			}
		}
	default:
		log.Fatalf("cannot fill a %v", v.Type())
	}
}

// isRequired returns true if Go prints null for the empty field, but the table omits it, because not all releases have it.
func (f *filler) isRequired(in reflect.Type, of reflect.StructField) bool {
	m := f.table[packageOf(in.PkgPath())+"."+in.Name()]
	return m != nil && slices.ContainsFunc(m.fields, func(known field) bool {
		return known.isPartial && known.omit == "" && strings.HasPrefix(of.Tag.Get("json")+",", known.name+",")
	})
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil()
	}
	return false
}

// enter fills a value whose type may contain itself; it nests a type at most twice.
func (f *filler) enter(t reflect.Type, v reflect.Value) bool {
	if t.Kind() == reflect.Struct && f.within[t] == 2 {
		return false
	}
	f.within[t]++
	f.fill(v)
	f.within[t]--
	return true
}
