package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The modules whose types are in the table, and their packages with kinds.
var modules = map[string][]string{
	"k8s.io/api":                     {"*/v*"},
	"k8s.io/apiextensions-apiserver": {"pkg/apis/apiextensions/v1"},
	"k8s.io/apimachinery":            {},
	"k8s.io/kube-aggregator":         {"pkg/apis/apiregistration/v1"},
	"k8s.io/metrics":                 {"pkg/apis/metrics/v1beta1"},
}

const (
	machinery   = "k8s.io/apimachinery/pkg/"
	metaPackage = machinery + "apis/meta/v1"
)

// Kinds of apimachinery, which every group registers.
var metaKinds = []struct{ path, name, apiVersion string }{
	{metaPackage, "Status", "v1"},
	{metaPackage, "PartialObjectMetadata", "meta.k8s.io/v1"},
	{metaPackage, "PartialObjectMetadata", "meta.k8s.io/v1beta1"},
}

// Messages whose JSON is not an object of their fields, with their fields if the Go struct differs from the message.
var forms = map[string]struct {
	form   string
	fields []field
}{
	"meta/v1.Time":                                  {"Time", timestamp},
	"meta/v1.MicroTime":                             {"MicroTime", timestamp},
	"meta/v1.Duration":                              {"Duration", []field{{number: 1, name: "duration", of: "int64"}}},
	"meta/v1.FieldsV1":                              {"Raw", []field{{number: 1, name: "Raw", of: "bytes"}}},
	"pkg/runtime.RawExtension":                      {"Raw", nil},
	"apiextensions/v1.JSON":                         {"Raw", nil},
	"api/resource.Quantity":                         {"Quantity", []field{{number: 1, name: "string", of: "string"}}},
	"util/intstr.IntOrString":                       {"IntOrString", nil},
	"apiextensions/v1.JSONSchemaPropsOrArray":       {"Or", nil},
	"apiextensions/v1.JSONSchemaPropsOrBool":        {"Or", nil},
	"apiextensions/v1.JSONSchemaPropsOrStringArray": {"Or", nil},
}

var timestamp = []field{{number: 1, name: "seconds", of: "int64"}, {number: 2, name: "nanos", of: "int32"}}

// sources are the Go sources of one release.
type sources struct {
	version string
	// By the path of the module.
	dirs     map[string]string
	packages map[string]*goPackage
}

type goPackage struct {
	*sources
	path  string
	types map[string]goType
	// The types that have such a method.
	unmarshals, marshalsJSON map[string]bool
	// apiVersion, and the types that are kinds in it.
	apiVersion string
	kinds      []string
}

// goType is an expression, with its package and its file.
type goType struct {
	*goPackage
	file *ast.File
	expr ast.Expr
}

// download makes the Go command download the modules of a release and check them against the checksum database.
func download(version string) *sources {
	args := []string{"mod", "download", "-json"}
	for module := range modules {
		args = append(args, module+"@"+version)
	}
	command := exec.Command("go", args...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		log.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	s := &sources{version, map[string]string{}, map[string]*goPackage{}}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var module struct{ Path, Dir string }
		must(decoder.Decode(&module))
		s.dirs[module.Path] = module.Dir
	}
	return s
}

// table returns every kind of the release, and all messages in these kinds.
func (s *sources) table() table {
	t := table{}
	for module, patterns := range modules {
		for _, pattern := range patterns {
			dirs, err := filepath.Glob(s.dirs[module] + "/" + pattern)
			must(err)
			for _, dir := range dirs {
				p := s.load(module + strings.TrimPrefix(filepath.ToSlash(dir), filepath.ToSlash(s.dirs[module])))
				for _, name := range p.kinds {
					p.addKind(t, name, p.apiVersion)
				}
			}
		}
	}
	for _, kind := range metaKinds {
		s.load(kind.path).addKind(t, kind.name, kind.apiVersion)
	}
	return t
}

// addKind adds an object that a server serves: neither a list nor the parameters of a request.
func (p *goPackage) addKind(t table, name, apiVersion string) {
	fields, _ := p.types[name].underlying().expr.(*ast.StructType)
	if fields == nil {
		log.Fatalf("%s.%s is not a struct", p.path, name)
	}
	isList := slices.ContainsFunc(fields.Fields.List, func(field *ast.Field) bool {
		return len(field.Names) == 1 && field.Names[0].Name == "Items"
	})
	if isList || strings.HasSuffix(name, "Options") {
		return
	}
	message := p.addMessage(t, name)
	message.apiVersions = append(message.apiVersions, apiVersion)
}

func (s *sources) load(importPath string) *goPackage {
	if p := s.packages[importPath]; p != nil {
		return p
	}
	dir := ""
	for module := range modules {
		if strings.HasPrefix(importPath, module+"/") {
			dir = s.dirs[module] + strings.TrimPrefix(importPath, module)
		}
	}
	if dir == "" {
		log.Fatalf("%s is in none of the modules", importPath)
	}
	p := &goPackage{s, importPath, map[string]goType{}, map[string]bool{}, map[string]bool{}, "", nil}
	s.packages[importPath] = p
	paths, err := filepath.Glob(dir + "/*.go")
	must(err)
	for _, path := range paths {
		if matches, err := build.Default.MatchFile(dir, filepath.Base(path)); err != nil || !matches || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(err)
		for _, decl := range file.Decls {
			p.declare(file, decl)
		}
		if filepath.Base(path) == "register.go" {
			p.register(file)
		}
	}
	return p
}

func (p *goPackage) declare(file *ast.File, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok {
				p.types[spec.Name.Name] = goType{p, file, spec.Type}
			}
		}
	case *ast.FuncDecl:
		if decl.Recv == nil {
			return
		}
		receiver := decl.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			switch decl.Name.Name {
			case "Unmarshal":
				p.unmarshals[name.Name] = true
			case "MarshalJSON":
				p.marshalsJSON[name.Name] = true
			}
		}
	}
}

// register finds the group, its version and the kinds in the calls that register them.
func (p *goPackage) register(file *ast.File) {
	group, version := "", ""
	text := func(expr ast.Expr) string {
		literal, _ := expr.(*ast.BasicLit)
		if literal == nil {
			return ""
		}
		text, err := strconv.Unquote(literal.Value)
		must(err)
		return text
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ValueSpec:
			if node.Names[0].Name == "GroupName" {
				group = text(node.Values[0])
			}
		case *ast.KeyValueExpr:
			if key, ok := node.Key.(*ast.Ident); ok && key.Name == "Version" && text(node.Value) != "" {
				version = text(node.Value)
			}
		case *ast.CallExpr:
			if called, ok := node.Fun.(*ast.SelectorExpr); !ok || called.Sel.Name != "AddKnownTypes" {
				return true
			}
			for _, arg := range node.Args {
				if pointer, ok := arg.(*ast.UnaryExpr); ok {
					// Types of other packages are types of meta/v1.
					if name, ok := pointer.X.(*ast.CompositeLit).Type.(*ast.Ident); ok {
						p.kinds = append(p.kinds, name.Name)
					}
				}
			}
		}
		return true
	})
	p.apiVersion = path.Join(group, version)
}

// packageOf returns the last two parts of the path: core/v1.
func packageOf(importPath string) string {
	parts := strings.Split(importPath, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

// addMessage adds a message and the messages in it.
func (p *goPackage) addMessage(t table, name string) *message {
	key := packageOf(p.path) + "." + name
	if known := t[key]; known != nil {
		return known
	}
	special, isSpecial := forms[key]
	if isSpecial != (p.marshalsJSON[name] || key == "meta/v1.FieldsV1") {
		log.Fatalf("%s %s: has its own JSON form: %v", p.version, key, !isSpecial)
	}
	m := &message{form: cmp.Or(special.form, "Object"), fields: special.fields}
	t[key] = m
	underlying := p.types[name].underlying()
	switch expr := underlying.expr.(type) {
	case *ast.ArrayType:
		if of, shape := underlying.resolve(t); of != "string" || shape != "Repeated" {
			log.Fatalf("%s %s has items that are not strings", p.version, key)
		}
		m.form, m.fields = "Items", []field{{number: 1, name: "items", shape: "Repeated", of: "string"}}
	case *ast.StructType:
		if m.fields != nil {
			break
		}
		for _, of := range expr.Fields.List {
			if f := underlying.field(t, key, m, of); f != nil {
				m.fields = append(m.fields, *f)
			}
		}
	default:
		log.Fatalf("%s %s is not a message", p.version, key)
	}
	return m
}

// field returns nil for a field that protobuf does not have.
func (in goType) field(t table, parent string, m *message, of *ast.Field) *field {
	goName := ""
	switch {
	case len(of.Names) == 1:
		goName = of.Names[0].Name
	case len(of.Names) > 1:
		log.Fatalf("%s: several fields in one line", parent)
	}
	if goName == "" && typeName(of.Type) == "TypeMeta" {
		return nil // from the envelope
	}
	var tag reflect.StructTag
	if of.Tag != nil {
		text, err := strconv.Unquote(of.Tag.Value)
		must(err)
		tag = reflect.StructTag(text)
	}
	wire := strings.Split(tag.Get("protobuf"), ",")
	if len(wire) < 2 {
		if parent == "pkg/runtime.RawExtension" {
			return nil // Object, which is not serialized
		}
		log.Fatalf("%s %s.%s has no number", in.version, parent, goName)
	}
	number, err := strconv.Atoi(wire[1])
	must(err)
	f := &field{number: number}
	f.of, f.shape = goType{in.goPackage, in.file, of.Type}.resolve(t)

	options := strings.Split(tag.Get("json"), ",")
	f.name = options[0]
	switch {
	case m.form != "Object":
		_, f.name, _ = strings.Cut(tag.Get("protobuf"), "name=")
		f.name, _, _ = strings.Cut(f.name, ",")
	case f.name == "-":
		log.Fatalf("%s %s.%s is not in JSON", in.version, parent, goName)
	case f.name == "" && goName != "":
		f.name = goName
	}
	for _, option := range options[1:] {
		switch option {
		case "omitempty":
			f.omit = cmp.Or(f.omit, "Empty")
		case "omitzero":
			if f.of != "meta/v1.Time" {
				log.Fatalf("%s %s.%s is omitzero, but not a time", in.version, parent, goName)
			}
			f.omit = "Zero"
		case "inline":
		default:
			log.Fatalf("%s %s.%s is %q", in.version, parent, goName, option)
		}
	}
	if inner := t[f.of]; inner != nil && inner.form == "Items" && f.shape != "Map" {
		log.Fatalf("%s %s.%s is a type with items outside a map", in.version, parent, goName)
	}
	return f
}

// The protobuf names of Go's scalars. The tag does not help: it has bytes for some integers.
var scalars = map[string]string{"string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "float64": "double"}

// resolve returns the scalar or the message, which it adds to the table, and the shape around it.
func (g goType) resolve(t table) (of, shape string) {
	in := func(expr ast.Expr) goType { return goType{g.goPackage, g.file, expr} }
	inner := func(expr ast.Expr, shape string) (string, string) {
		of, inner := in(expr).resolve(t)
		if inner != "" {
			log.Fatalf("%s %s: %s in %s", g.version, g.path, inner, shape)
		}
		return of, shape
	}
	switch expr := g.expr.(type) {
	case *ast.StarExpr:
		return inner(expr.X, "Optional")
	case *ast.ArrayType:
		if element, ok := expr.Elt.(*ast.Ident); ok && element.Name == "byte" {
			return "bytes", ""
		}
		return inner(expr.Elt, "Repeated")
	case *ast.MapType:
		if of, shape := in(expr.Key).resolve(t); of != "string" || shape != "" {
			log.Fatalf("%s %s: a map with keys of %s", g.version, g.path, of)
		}
		return inner(expr.Value, "Map")
	case *ast.SelectorExpr:
		return g.imported(expr.X.(*ast.Ident).Name).named(t, expr.Sel.Name)
	case *ast.Ident:
		if scalar := scalars[expr.Name]; scalar != "" {
			return scalar, ""
		}
		return g.named(t, expr.Name)
	}
	log.Fatalf("%s %s: a field of type %T", g.version, g.path, g.expr)
	return "", ""
}

func (p *goPackage) named(t table, name string) (of, shape string) {
	g, known := p.types[name]
	if !known {
		log.Fatalf("%s: no type %s in %s", p.version, name, p.path)
	}
	if _, isStruct := g.expr.(*ast.StructType); isStruct || p.unmarshals[name] {
		p.addMessage(t, name)
		return packageOf(p.path) + "." + name, ""
	}
	return g.resolve(t)
}

// typeName returns the name of a type without its package.
func typeName(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.SelectorExpr:
		return expr.Sel.Name
	}
	return ""
}

// underlying returns the type that a name refers to.
func (g goType) underlying() goType {
	switch expr := g.expr.(type) {
	case *ast.Ident:
		if named, known := g.types[expr.Name]; known {
			return named.underlying()
		}
	case *ast.SelectorExpr:
		return g.imported(expr.X.(*ast.Ident).Name).types[expr.Sel.Name].underlying()
	}
	return g
}

// imported returns the package that this name refers to in the file.
func (g goType) imported(name string) *goPackage {
	for _, spec := range g.file.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		must(err)
		if spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(importPath) == name {
			return g.load(importPath)
		}
	}
	log.Fatalf("%s %s: no import %s", g.version, g.path, name)
	return nil
}
