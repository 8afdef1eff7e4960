// Reads copies of a bbolt file of etcd, each with one damaged byte, and prints what bbolt reads from it: `OFFSET HASH`, or
// `OFFSET error`. The example `damaged` of listwatch-etcd prints the same, so that both can be compared.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"
	"sort"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

func main() {
	debug.SetPanicOnFault(true)
	whole, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	copied := os.Args[2]
	flips := []byte{0x01, 0x80, 0xFF}
	for at := range whole {
		damaged := bytes.Clone(whole)
		damaged[at] ^= flips[at%3]
		if err := os.WriteFile(copied, damaged, 0o600); err != nil {
			panic(err)
		}
		fmt.Println(at, read(copied))
	}
}

// The state at the newest revision, as etcd's mvcc store would rebuild it.
func read(path string) (result string) {
	defer func() {
		if fault := recover(); fault != nil {
			result = "error"
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return "error"
	}
	defer db.Close()
	values := map[string][]byte{}
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket([]byte("key"))
		if keys == nil {
			return fmt.Errorf("no bucket")
		}
		return keys.ForEach(func(k, v []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil {
				return err
			}
			if len(k) == 18 {
				delete(values, string(kv.Key))
			} else {
				values[string(kv.Key)] = bytes.Clone(v)
			}
			return nil
		})
	})
	if err != nil {
		return "error"
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	hash := sha256.New()
	for _, name := range names {
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(values[name], &kv); err != nil {
			return "error"
		}
		for _, part := range [][]byte{kv.Key, kv.Value} {
			var length [8]byte
			binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
			hash.Write(length[:])
			hash.Write(part)
		}
		var numbers [32]byte
		for i, number := range []int64{kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease} {
			binary.LittleEndian.PutUint64(numbers[8*i:], uint64(number))
		}
		hash.Write(numbers[:])
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}
