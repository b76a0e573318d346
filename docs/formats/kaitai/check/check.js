// Compiles the schemas beside this directory, and reads the repository's golden bytes with the parsers.
//
//   *.ksy --compiler--> parsers --golden files, golden bytes in tests and docs--> fields <--> known values
//
// node check.js DIR: DIR has the packages of package.json in node_modules, and receives the parsers.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');

const target = path.resolve(process.argv[2]);
const schemas = path.resolve(__dirname, '..');
const root = path.resolve(schemas, '../../..');
const load = createRequire(path.join(target, 'x.js'));
const { parse } = load('yaml');
const { KaitaiStream } = load('kaitai-struct');

const source = (file) => fs.readFileSync(path.join(root, file), 'utf8');
const schema = (name) => parse(fs.readFileSync(path.join(schemas, `${name}.ksy`), 'utf8'));
const stream = (bytes) => new KaitaiStream(Uint8Array.from(bytes).buffer);
const unhex = (text) => Buffer.from(text.replace(/[^0-9a-fA-F]/g, ''), 'hex');
const hex = (bytes) => Buffer.from(bytes).toString('hex');
const text = (bytes) => Buffer.from(bytes).toString();
const values = (several) => several.numbers.map((number) => number.value);

async function compile() {
  const compiler = load('kaitai-struct-compiler');
  const files = fs.readdirSync(schemas).filter((file) => file.endsWith('.ksy'));
  const importer = { importYaml: (name) => Promise.resolve(schema(name)) };
  const parsers = path.join(target, 'parsers');
  fs.mkdirSync(parsers, { recursive: true });
  for (const file of files) {
    const sources = await compiler.compile('javascript', schema(path.parse(file).name), importer, false);
    for (const [name, code] of Object.entries(sources)) fs.writeFileSync(path.join(parsers, name), code);
  }
  const require = createRequire(path.join(parsers, 'x.js'));
  return (name) => require(`./${name}.js`)[name];
}

// Record files, from the test of crates/esker/src/recordio.
function recordio({ EskerRecordio }) {
  const golden = source('crates/esker/src/recordio/tests.rs').match(/const GOLDEN_V1: &str = "([^"]*)"/)[1];
  const file = new EskerRecordio(stream(unhex(golden.replace(/\\\n/g, ''))));
  assert.strictEqual(EskerRecordio.Codec[file.header.codec], 'SNAPPY');
  assert.deepStrictEqual(file.records.map((record) => record.frame.lenRaw), [5, 90, 0]);
  assert.deepStrictEqual(file.records.map((record) => record.frame.isCompressed), [false, true, false]);
  assert.strictEqual(text(file.records[0].payload), 'first');
}

// The entries of a block: [key, value] or [key, null].
function entries(block) {
  return block.area.entries.map((entry, n) => {
    const head = Buffer.alloc(4);
    head.writeUInt32BE(block.heads[n]);
    const parts = [block.prefix, block.isHeaded ? head : Buffer.alloc(0), entry.rest];
    const key = Buffer.concat(parts.map((part) => Buffer.from(part)));
    const kind = block.isAllVisible ? 1 : block.trailers[n].kind;
    return [hex(key), kind % 64 === 0 ? null : hex(entry.value)];
  });
}

// The table of crates/esker/src/sstable/tests/golden.rs, which docs/formats/sstable.md explains.
function sstable({ EskerSstable }) {
  const tests = source('crates/esker/src/sstable/tests/golden.rs');
  const golden = tests.match(/const VERSION_1: &str = "([^"]*)"/)[1];
  const table = new EskerSstable(stream(unhex(golden)));
  const found = table.data.blocks.flatMap((block) => entries(block.content));
  const key = (name) => hex(Buffer.from(`\u0001${name}`));
  const names = [
    ['apple', 'red'], ['apricot', 'orange'], ['banana', 'yellow'], ['banana'], ['blueberry', 'blue'],
  ];
  const expected = names.map(([name, value]) => [key(name), value ? hex(Buffer.from(value)) : null]);
  assert.deepStrictEqual(found, expected);
  const versions = table.data.blocks[1].content.trailers;
  assert.deepStrictEqual(versions.map((trailer) => trailer.seqno), [9, 4]);
  assert.deepStrictEqual(values(table.properties.content.counts), [5, 4, 1, 1, 38, 19, 0, 9]);
  const [fragment] = table.rangeTombstones.content.fragments;
  assert.deepStrictEqual([hex(fragment.start.data), values(fragment.seqnos)], [key('c'), [7]]);
  assert.strictEqual(table.filter.content.numProbes, 6);
  const separators = table.index.content.blocks.map((block) => text(block.separator.data));
  assert.deepStrictEqual(separators, ['', 'b', 'bl']);
  assert.strictEqual(table.footer.newestCommit, 9);
}

// The table with index pages of the same test.
function sstablePages({ EskerSstable }) {
  const tests = source('crates/esker/src/sstable/tests/golden.rs');
  const golden = tests.match(/const VERSION_1_PAGES: &str = "([^"]*)"/)[1];
  const table = new EskerSstable(stream(unhex(golden)));
  const found = table.data.pages.map((page) => page.blocks.flatMap((block) => entries(block.content)));
  const key = (name) => hex(Buffer.from(`\u0001${name}`));
  const [red, yellow, blue] = ['red', 'yellow', 'blue'].map((value) => hex(Buffer.from(value)));
  const banana = [key('banana'), yellow];
  const expected = [[[key('apple'), red], banana], [banana, banana], [[key('blueberry'), blue]]];
  assert.deepStrictEqual(found, expected);
  assert.deepStrictEqual(table.data.blocks, []);
  const { paging } = table.index.content;
  assert.deepStrictEqual([paging.numBlocks.value, paging.pageBlocks.value], [5, 2]);
}

// The golden directories: tables agree with the manifest and the expected contents.
function databases({ EskerManifest, EskerSstable, EskerWal }) {
  const goldens = path.join(root, 'crates/esker/tests/goldens/database-1');
  let [tables, seen, commits] = [0, 0, 0];
  for (const name of fs.readdirSync(goldens)) {
    const read = (file) => stream(fs.readFileSync(path.join(goldens, name, file)));
    const files = fs.readdirSync(path.join(goldens, name));
    const manifest = new EskerManifest(read(files.find((file) => file.startsWith('MANIFEST-'))));
    const fields = manifest.edits.flatMap((edit) => edit.body.fields);
    assert.strictEqual(manifest.head.body.version.value, 1);
    assert.ok(fields.some((field) => field.tag === EskerManifest.Tag.DATABASE));
    const lines = fs.readFileSync(path.join(goldens, name, 'EXPECTED'), 'utf8').split('\n');
    const expected = lines.map((line) => line.split('\t')).filter((columns) => columns.length >= 3);
    const known = new Map(expected.map(([, key, value]) => [key, value]));
    for (const file of files.filter((file) => file.endsWith('.sst'))) {
      const table = new EskerSstable(read(file));
      const counts = values(table.properties.content.counts);
      const joined = fields.filter((field) => field.tag === EskerManifest.Tag.TABLE_JOINS)
        .find((field) => field.content.file.value === Number.parseInt(file, 10));
      assert.ok(joined, `${name}/${file} is not in the manifest`);
      assert.deepStrictEqual(values(joined.content.counts), counts);
      assert.strictEqual(joined.content.fingerprint.value, table.properties.content.fingerprint);
      const blocks = table.data.blocks.filter((block) => block.codec === EskerSstable.Codec.NONE);
      const found = blocks.flatMap((block) => entries(block.content));
      if (blocks.length === table.data.blocks.length) assert.strictEqual(found.length, counts[0]);
      seen += found.filter(([key, value]) => value !== null && known.get(key.slice(2)) === value).length;
      tables += 1;
    }
    for (const file of files.filter((file) => file.endsWith('.wal'))) {
      const segment = new EskerWal(read(file));
      assert.strictEqual(segment.header.number, Number.parseInt(file, 10));
      const records = segment.records.filter((record) => record.kind === EskerWal.Kind.FULL);
      const ascends = records.every((record, n) => n === 0 || record.seqno > records[n - 1].seqno);
      assert.ok(ascends, `${name}/${file}`);
      commits += records.length;
    }
  }
  console.log(`${tables} tables with ${seen} of the expected entries, ${commits} commits in log segments`);
  assert.ok(tables >= 10 && seen >= 100 && commits >= 10);
}

// Records and pointers, from tests whose expected bytes are in hexadecimal.
function others({ EskerUnload, EskerBlob, EskerTuple }) {
  const bytes = unhex(`65736b657220756e6c6f6164 01 0500000000000000 ac02 01 05757365727307`);
  const head = new EskerUnload.Head(stream(bytes));
  assert.deepStrictEqual([head.seqno.value, text(head.keyspaces[0].name.data)], [300, 'users']);
  const tests = source('crates/esker/src/unload/format.rs').match(/let records = \[([^]*?)\];/)[1];
  const goldens = [...tests.matchAll(/Record::.*"([0-9a-f ]+)"\),$/gm)];
  const records = goldens.map(([, golden]) => new EskerUnload.Content(stream(unhex(golden))));
  const kinds = records.map((record) => EskerUnload.Kind[record.kind]);
  assert.deepStrictEqual(kinds, ['KEYSPACE', 'ENTRIES', 'KEYSPACE_END', 'END']);
  assert.deepStrictEqual(records[0].body.options.map((option) => option.code.value), [1, 2, 3, 10, 4]);
  const [a, b] = records[1].body.entries;
  assert.deepStrictEqual([text(a.key.data), text(b.key.data), b.expiresMs.value], ['a', 'b', 300]);
  assert.strictEqual(records[3].body.value, 300);

  const examples = [...source('docs/formats/tuple.md').matchAll(/^\| .* \| `((?:[0-9A-F]{2} ?)+)` \|$/gm)];
  assert.strictEqual(examples.length, 10);
  const keys = examples.map(([, bytes]) => new EskerTuple(stream(unhex(bytes))));
  const chunks = keys[0].fields[0].content.chunks.map((chunk) => text(chunk.data));
  assert.deepStrictEqual(chunks, ['foo', 'bar']);
  const nested = keys[2].fields[0].content.fields;
  assert.deepStrictEqual(nested.map((field) => field.isNull), [false, true, false, false]);
  assert.deepStrictEqual(keys[5].fields.map((field) => field.code), [0x15, 0x02]);
  assert.strictEqual(hex(keys[8].fields[0].content.data), 'feffffffffffffffff');

  const pointers = source('crates/esker/src/blob/pointer.rs').matchAll(/"(0[0-2]07ac0203[0-9a-f]+)"/g);
  const found = [...pointers].map(([, bytes]) => new EskerBlob.Pointer(stream(unhex(bytes))));
  const lengths = found.map((pointer) => [pointer.form, pointer.offset.value, pointer.lenStored?.value]);
  assert.deepStrictEqual(lengths, [[0, 300, undefined], [1, 300, 200], [2, 300, 200]]);
  const rest = unhex(`01000000 00000000 0700000000000000 12345678 00000000`);
  const file = Buffer.concat([Buffer.from('eskerBLB'), rest, Buffer.from('abc')]);
  assert.ok(!new EskerBlob(stream(file)).hasMap);
  const map = unhex(`2c01000000000000 2000000000000000 0100000000000000 00000000`);
  const moved = new EskerBlob(stream(Buffer.concat([file, map, Buffer.from('bmap')])));
  assert.deepStrictEqual(moved.moved.map((one) => [one.pointerOffset, one.offset]), [[300, 32]]);
}

compile().then((parser) => {
  const parsers = new Proxy({}, { get: (_, name) => parser(name) });
  [recordio, sstable, sstablePages, databases, others].forEach((check) => check(parsers));
}).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
