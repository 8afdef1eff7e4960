// Boltdiff says what bbolt reads from damaged files, so that listwatch-etcd can be compared with it.
//
//	boltdiff FILE COPY
//	boltdiff -write FILE
//
// The first form damages one byte of a copy of FILE after the other, and prints `OFFSET HASH` or `OFFSET error` for each.
// The second writes a small file as etcd does, with pages of 1 KiB, which has branches, overflow pages, a nested bucket,
// older revisions and deleted keys: crates/etcd/tests/branches.db.
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
	if os.Args[1] == "-write" {
		write(os.Args[2])
		return
	}
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

func write(path string) {
	db, err := bolt.Open(path, 0o644, &bolt.Options{PageSize: 1024, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	check(err)
	db.AllocSize = 1024
	for _, name := range []string{"key", "meta", "auth", "lease"} {
		check(db.Update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte(name))
			return err
		}))
	}
	check(db.Update(func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		for name, value := range map[string][]byte{
			"consistent_index": binary.BigEndian.AppendUint64(nil, 77), "scheduledCompactRev": revision(2, 0), "finishedCompactRev": revision(2, 0),
		} {
			check(meta.Put([]byte(name), value))
		}
		_, err := tx.Bucket([]byte("auth")).CreateBucket([]byte("nested"))
		return err
	}))
	// One transaction after the other, so that pages split and become free as in etcd.
	for main := int64(2); main < 30; main++ {
		check(db.Update(func(tx *bolt.Tx) error {
			key := fmt.Sprintf("/registry/pods/web/%d", main*7%11)
			value := bytes.Repeat([]byte{byte('a' + main%26)}, int(20+main*13%60))
			if main == 20 {
				value = bytes.Repeat([]byte("large"), 500)
			}
			at, kv := revision(main, 0), mvccpb.KeyValue{Key: []byte(key), CreateRevision: 2, ModRevision: main, Version: main - 1, Value: value}
			if main%9 == 8 {
				at, kv = append(at, 't'), mvccpb.KeyValue{Key: []byte(key)}
			}
			encoded, err := proto.Marshal(&kv)
			check(err)
			return tx.Bucket([]byte("key")).Put(at, encoded)
		}))
	}
	check(db.Close())
}

func revision(main, sub int64) []byte {
	bytes := binary.BigEndian.AppendUint64(nil, uint64(main))
	return binary.BigEndian.AppendUint64(append(bytes, '_'), uint64(sub))
}

func check(err error) {
	if err != nil {
		panic(err)
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
