package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// served is a kind that kube-apiserver lists.
type served struct {
	group, version, plural, kind string
	isNamespaced                 bool
}

// servedReleases returns the releases whose resources are constants in Rust: the last two.
func servedReleases() []string { return releases[len(releases)-2:] }

// resources returns the kinds that kube-apiserver of the release can list: kinds with a generated client and a list type,
// without versions that the release has removed.
func (s *sources) resources() map[served]bool {
	found := map[served]bool{}
	for module, patterns := range modules {
		if module == "k8s.io/metrics" {
			continue // served by an extension
		}
		for _, pattern := range patterns {
			dirs, err := filepath.Glob(s.dirs[module] + "/" + pattern)
			must(err)
			for _, dir := range dirs {
				p := s.load(module + strings.TrimPrefix(filepath.ToSlash(dir), filepath.ToSlash(s.dirs[module])))
				p.addResources(found, dir)
			}
		}
	}
	return found
}

func (p *goPackage) addResources(found map[served]bool, dir string) {
	group, version := path.Split(p.apiVersion)
	paths, err := filepath.Glob(dir + "/*.go")
	must(err)
	tags, removed := map[string][]string{}, map[string]int{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		must(err)
		var end token.Pos
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						tags[spec.Name.Name] = tagsBetween(file, end, decl.Pos())
					}
				}
			case *ast.FuncDecl:
				if decl.Name.Name == "APILifecycleRemoved" {
					name, minor := lifecycle(decl)
					removed[name] = minor
				}
			}
			end = decl.End()
		}
	}
	for _, kind := range p.kinds {
		minor, isRemoved := removed[kind]
		if !slices.Contains(tags[kind], "+genclient") || !slices.Contains(p.kinds, kind+"List") || isRemoved && minor <= p.minor() {
			continue
		}
		plural := plural(strings.ToLower(kind))
		for _, tag := range tags[kind] {
			if name, ok := strings.CutPrefix(tag, "+resourceName="); ok {
				plural = name
			}
		}
		isNamespaced := !slices.Contains(tags[kind], "+genclient:nonNamespaced")
		found[served{strings.TrimSuffix(group, "/"), version, plural, kind, isNamespaced}] = true
	}
}

// tagsBetween returns the tags in the comments between two places: the tags of a type may precede its documentation.
func tagsBetween(file *ast.File, after, before token.Pos) (tags []string) {
	for _, group := range file.Comments {
		if group.Pos() < after || group.Pos() > before {
			continue
		}
		for _, comment := range group.List {
			if text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")); strings.HasPrefix(text, "+") {
				tags = append(tags, text)
			}
		}
	}
	return tags
}

// isDefault returns true for a resource that a server lists unless it is configured otherwise: alpha versions are off.
func (r served) isDefault() bool { return !strings.Contains(r.version, "alpha") }

// apiVersion returns the apiVersion of its objects.
func (r served) apiVersion() string { return path.Join(r.group, r.version) }

// lifecycle returns the type of a method APILifecycleRemoved, and the minor release that it returns.
func lifecycle(method *ast.FuncDecl) (name string, minor int) {
	name = method.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
	returned := method.Body.List[0].(*ast.ReturnStmt).Results
	minor, err := strconv.Atoi(returned[1].(*ast.BasicLit).Value)
	must(err)
	return name, minor
}

// minor returns the minor release: 36 for v0.36.3.
func (s *sources) minor() int {
	minor, err := strconv.Atoi(strings.Split(s.version, ".")[1])
	must(err)
	return minor
}

// plural follows gengo's namer (namer.NewAllLowercasePluralNamer), with the exceptions of client-gen.
func plural(singular string) string {
	last := func(n int) string { return singular[max(0, len(singular)-n):] }
	switch {
	case singular == "endpoints":
		return singular
	case slices.Contains([]string{"s", "x"}, last(1)) || slices.Contains([]string{"ch", "sh"}, last(2)):
		return singular + "es"
	case last(1) == "y" && !strings.ContainsAny(last(2)[:1], "aeiou"):
		return strings.TrimSuffix(singular, "y") + "ies"
	case last(1) == "f":
		return strings.TrimSuffix(singular, "f") + "ves"
	case last(2) == "fe":
		return strings.TrimSuffix(singular, "fe") + "ves"
	}
	return singular + "s"
}

// constant returns the name of a kind's constant: CSI_DRIVERS for CSIDriver.
func constant(kind string) string {
	var snake strings.Builder
	runes := []rune(kind)
	for i, r := range runes {
		beginsWord := unicode.IsUpper(r) && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if beginsWord {
			snake.WriteByte('_')
		}
		snake.WriteRune(unicode.ToLower(r))
	}
	return strings.ToUpper(plural(snake.String()))
}

const resourcesHead = `// @generated by "go run ./fields" in e2e/apiserver, from the Go types of the modules
//
//   %s
//
// in the versions %s.

use super::resource::Resource;

/// The kinds that kube-apiserver of the newest two releases lists by default. Alpha versions are left out.
///
/// A constant without a version in its name is the newest stable version.
#[rustfmt::skip]
impl Resource {
`

// rustResources returns the constants as Rust code.
func rustResources(found map[served]bool) []byte {
	sorted := slices.SortedFunc(maps.Keys(found), func(a, b served) int {
		return cmp.Or(cmp.Compare(a.group, b.group), -cmp.Compare(stability(a.version), stability(b.version)), cmp.Compare(a.plural, b.plural))
	})
	newest, core := map[string]string{}, map[string]bool{}
	for _, r := range sorted {
		if r.group == "" {
			core[r.kind] = true
		}
		if key := r.group + "/" + r.kind; newest[key] == "" && !strings.Contains(r.version, "beta") {
			newest[key] = r.version
		}
	}
	var out, all bytes.Buffer
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(modules)), func(module string) bool { return module == "k8s.io/metrics" })
	fmt.Fprintf(&out, resourcesHead, strings.Join(paths, ", "), strings.Join(servedReleases(), ", "))
	known := map[string]bool{}
	for _, r := range sorted {
		name := constant(r.kind)
		if r.group != "" && core[r.kind] {
			name = strings.ToUpper(strings.ReplaceAll(r.group, ".", "_"))
		}
		if newest[r.group+"/"+r.kind] != r.version {
			name += "_" + strings.ToUpper(r.version)
		}
		if known[name] {
			log.Fatalf("two resources are %s", name)
		}
		known[name] = true
		scope := ""
		if !r.isNamespaced {
			scope = ".cluster_scoped()"
		}
		// The only one that kube-apiserver lists and does not watch: kubernetes api/discovery/api__v1.json, and the documents of groups.
		if r.plural == "componentstatuses" {
			scope += ".without_watch()"
		}
		fmt.Fprintf(&out, "    /// `%s.%s.%s`, kind `%s`.\n", r.plural, r.version, r.group, r.kind)
		fmt.Fprintf(&out, "    pub const %s: Self = Self::from_static(%q, %q, %q, %q)%s;\n", name, r.group, r.version, r.plural, r.kind, scope)
		fmt.Fprintf(&all, "        Self::%s,\n", name)
	}
	fmt.Fprintf(&out, "\n    /// All of these constants.\n    pub const BUILT_IN: &'static [Self] = &[\n%s    ];\n}\n", all.Bytes())
	return out.Bytes()
}

// stability returns a sort key of a version: 2 for v1beta2, 1000 for v1, 2000 for v2.
func stability(version string) int {
	major, minor := 0, 0
	if n, _ := fmt.Sscanf(version, "v%dbeta%d", &major, &minor); n == 2 {
		return 1000*(major-1) + minor
	}
	_, err := fmt.Sscanf(version, "v%d", &major)
	must(err)
	return 1000 * major
}
