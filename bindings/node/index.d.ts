/** Bytes that are passed in: a string becomes UTF-8. */
export type Bytes = string | Uint8Array | ArrayBuffer | DataView

/** When a commit is acknowledged: it is on the disk, the operating system has it, or at once. */
export type Durability = 'sync' | 'buffered' | 'none'

export type Isolation = 'serializable' | 'snapshot' | 'exclusive'

/** How keys or values become bytes. */
export interface Codec<In, Out = In> {
  encode (data: In, what?: string): Uint8Array
  decode (bytes: Buffer): Out
  /** The bytes with which all keys of a range begin. Default: `encode`. */
  prefix? (data: In): Uint8Array
}

/** What goes in and comes out with an encoding. */
type In<E> = E extends 'buffer' ? Bytes : E extends 'utf8' ? string : E extends 'json' ? any
  : E extends 'tuple' ? readonly tuple.Field[] : E extends Codec<infer I, any> ? I : never
type Out<E> = E extends 'buffer' ? Buffer : E extends 'utf8' ? string : E extends 'json' ? any
  : E extends 'tuple' ? tuple.Unpacked[] : E extends Codec<any, infer O> ? O : never

export type Encoding = 'buffer' | 'utf8' | 'json' | 'tuple' | Codec<any, any>

/** An error of the engine. */
export interface EskerError extends Error {
  /** `ESKER_CONFLICT`, `ESKER_CLOSED`, `ESKER_CORRUPT`, ...: the statuses of the C API. */
  code: string
  /** The file or directory that the error is about. */
  path?: string
  /** The position of damage in the file, in bytes. */
  offset?: number
  /** The number of the operating system's error. */
  errno?: number
  /** What `check` has found. */
  problems?: string[]
}

/** What `check` has read, and harmless findings. */
export interface CheckReport {
  tables: number
  blocks: number
  entries: number
  bytes: number
  logSegments: number
  commits: number
  notes: string[]
}

export interface OpenOptions {
  /** Bytes for cached blocks, indexes, filters and memtables. Default 1 GiB. */
  memory?: number
  /** Durability of commits that name none. Default `sync`. */
  durability?: Durability
  /** Isolation of transactions that name none. Default `serializable`. */
  isolation?: Isolation
  createIfMissing?: boolean
  errorIfExists?: boolean
  /** Opens the database beside other readers. Nothing is written. */
  readOnly?: boolean
  /** Whether tables are compressed where it pays. Default true. */
  compression?: boolean
  /** Values of this many bytes and more are stored in blob files. 0: none are. */
  blobsFrom?: number
  /** Milliseconds to wait for a database that another process has open. Default 0. */
  lockTimeout?: number
  /** Keeps a change feed: this many bytes (64 MiB) of the commits of the last milliseconds (an hour). */
  feed?: boolean | { bytes?: number, age?: number }
  /** Encrypts the database with the master keys of a file. */
  keyFile?: string
  /** Shares the database with other threads of this process that open it with this option. */
  multithreading?: boolean
}

export interface KeyspaceEncodings<K extends Encoding, V extends Encoding> {
  /** Encoding of keys. Default `buffer`, which also accepts strings. */
  keys?: K
  /** Encoding of values. Default `buffer`, which also accepts strings. */
  values?: V
}

/** Options that are stored in the database. */
export interface NewKeyspaceOptions {
  /** `add-i64`, `add-u64`, `append`, ...: the operators of the engine. */
  mergeOperator?: string
  /** Lifetime of values in milliseconds. */
  defaultTtl?: number
  blobsFrom?: number
  /** The keyspace is kept below this size by removing entries that expire first. */
  bytesMax?: number
  /** Number of versions of each key that are kept. */
  history?: number
  /** Whether commits look up keys, so that `count` is fast. Default true. */
  counting?: boolean
}

export interface KeyRange<K> {
  gt?: K
  gte?: K
  lt?: K
  lte?: K
  /** The bytes with which keys begin, instead of ends. */
  prefix?: K
}

export interface RangeOptions<K> extends KeyRange<K> {
  /** From the last key to the first. */
  reverse?: boolean
  /** Most entries. Default: all. */
  limit?: number
  keys?: boolean
  values?: boolean
}

/** Entries, keys or values in order. Each loop reads the state at its start. A `for` loop blocks on files. */
export interface Range<T> extends AsyncIterable<T>, Iterable<T> {
  toArray (): Promise<T[]>
}

interface RangeCalls<KI, KO, VO> {
  range (options: RangeOptions<KI> & { values: false }): Range<KO>
  range (options: RangeOptions<KI> & { keys: false }): Range<VO>
  range (options?: RangeOptions<KI>): Range<[KO, VO]>
  keys (options?: RangeOptions<KI>): Range<KO>
  values (options?: RangeOptions<KI>): Range<VO>
}

/** The reads of a keyspace: of its newest state, a snapshot or a transaction. */
export interface Reads<K extends Encoding = 'buffer', V extends Encoding = 'buffer'>
  extends RangeCalls<In<K>, Out<K>, Out<V>>, AsyncIterable<[Out<K>, Out<V>]> {
  readonly name: string
  readonly id: number
  get (key: In<K>): Promise<Out<V> | undefined>
  /** Blocks while a file is read. */
  getSync (key: In<K>): Out<V> | undefined
  /** The values of several keys, all of one state. */
  getMany (keys: Array<In<K>>): Promise<Array<Out<V> | undefined>>
  has (key: In<K>): Promise<boolean>
  hasSync (key: In<K>): boolean
  hasMany (keys: Array<In<K>>): Promise<boolean[]>
  /** Remaining milliseconds, `Infinity` without an end, undefined without the key. */
  ttl (key: In<K>): Promise<number | undefined>
  /** The exact number of keys. */
  count (): Promise<number>
}

export interface Swap<V> { swapped: boolean, old: V | undefined }

/** What reads and writes one key. */
interface Updates<K extends Encoding, V extends Encoding> extends Reads<K, V> {
  /** Removes a key and resolves to what it had. */
  remove (key: In<K>): Promise<Out<V> | undefined>
  /** Sets a key to `value` if it has `expected`. Undefined stands for no value. */
  compareAndSwap (key: In<K>, expected: In<V> | undefined, value: In<V> | undefined): Promise<Swap<Out<V>>>
  /** Adds to a number of eight bytes (little-endian) and resolves to the number before. */
  add (key: In<K>, by?: bigint | number): Promise<bigint>
  /** Sets the lifetime of a key in milliseconds; `Infinity`: without an end. Whether the key exists. */
  expire (key: In<K>, ttl: number): Promise<boolean>
  popFirst (): Promise<[Out<K>, Out<V>] | undefined>
  popLast (): Promise<[Out<K>, Out<V>] | undefined>
}

/** A named, ordered map. Each write is a commit of its own, and resolves to its number. */
export interface Keyspace<K extends Encoding = 'buffer', V extends Encoding = 'buffer'>
  extends Updates<K, V> {
  readonly db: Db
  /** Reads a key in memory. `cached: false`: a file would have to be read. */
  getCached (key: In<K>): { cached: true, value: Out<V> | undefined } | { cached: false }
  put (key: In<K>, value: In<V>, options?: { ttl?: number }): Promise<number>
  /** Puts all entries in one commit. */
  putMany (entries: Iterable<readonly [In<K>, In<V>]>): Promise<number>
  delete (key: In<K>): Promise<number>
  merge (key: In<K>, operand: Bytes): Promise<number>
  /** Removes a range, at a cost that does not depend on the number of its keys. */
  deleteRange (range: KeyRange<In<K>>): Promise<number>
  clear (): Promise<number>
  approximateSize (range?: KeyRange<In<K>>): Promise<number>
  compactRange (range?: KeyRange<In<K>>): Promise<void>
  setMergeOperator (name: string): Promise<void>
  with (options: { durability?: Durability, ttl?: number }): Keyspace<K, V>
  as<K2 extends Encoding = K, V2 extends Encoding = V> (
    encodings: KeyspaceEncodings<K2, V2>): Keyspace<K2, V2>
}

/** A keyspace in a transaction. Its writes take effect with the commit. */
export interface TransactionKeyspace<K extends Encoding = 'buffer', V extends Encoding = 'buffer'>
  extends Updates<K, V> {
  put (key: In<K>, value: In<V>, options?: { ttl?: number }): void
  delete (key: In<K>): void
  merge (key: In<K>, operand: Bytes): void
  deleteRange (range: KeyRange<In<K>>): void
}

/** The calls of `Reads` with the keyspace as first argument. */
interface ReadsOf {
  get<K extends Encoding, V extends Encoding> (ks: Keyspace<K, V>, key: In<K>): Promise<Out<V> | undefined>
  getSync<K extends Encoding, V extends Encoding> (ks: Keyspace<K, V>, key: In<K>): Out<V> | undefined
  getMany<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>, keys: Array<In<K>>): Promise<Array<Out<V> | undefined>>
  has<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>): Promise<boolean>
  hasSync<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>): boolean
  hasMany<K extends Encoding> (ks: Keyspace<K, any>, keys: Array<In<K>>): Promise<boolean[]>
  ttl<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>): Promise<number | undefined>
  count (ks: Keyspace<any, any>): Promise<number>
  range<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>, options?: RangeOptions<In<K>>): Range<[Out<K>, Out<V>]>
  keys<K extends Encoding> (ks: Keyspace<K, any>, options?: RangeOptions<In<K>>): Range<Out<K>>
  values<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>, options?: RangeOptions<In<K>>): Range<Out<V>>
}

/** A state of all keyspaces. Close it: it keeps old versions of entries. */
export interface Snapshot extends ReadsOf, Disposable {
  readonly seqno: number
  keyspace<K extends Encoding, V extends Encoding> (ks: Keyspace<K, V>): Reads<K, V>
  close (): void
}

/** Writes that are committed together. */
export interface Batch extends Disposable {
  put<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>, key: In<K>, value: In<V>, options?: { ttl?: number }): this
  delete<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>): this
  merge<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>, operand: Bytes): this
  deleteRange<K extends Encoding> (ks: Keyspace<K, any>, range: KeyRange<In<K>>): this
  commit (options?: { durability?: Durability }): Promise<number>
  close (): void
}

/** Reads and writes that are committed together. */
export interface Transaction extends ReadsOf, Disposable {
  readonly seqno: number
  keyspace<K extends Encoding, V extends Encoding> (ks: Keyspace<K, V>): TransactionKeyspace<K, V>
  put<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>, key: In<K>, value: In<V>, options?: { ttl?: number }): void
  delete<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>): void
  merge<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>, operand: Bytes): void
  deleteRange<K extends Encoding> (ks: Keyspace<K, any>, range: KeyRange<In<K>>): void
  remove<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>, key: In<K>): Promise<Out<V> | undefined>
  compareAndSwap<K extends Encoding, V extends Encoding> (ks: Keyspace<K, V>, key: In<K>,
    expected: In<V> | undefined, value: In<V> | undefined): Promise<Swap<Out<V>>>
  add<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>, by?: bigint | number): Promise<bigint>
  expire<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>, ttl: number): Promise<boolean>
  popFirst<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>): Promise<[Out<K>, Out<V>] | undefined>
  popLast<K extends Encoding, V extends Encoding> (
    ks: Keyspace<K, V>): Promise<[Out<K>, Out<V>] | undefined>
  /** Locks a key until the transaction ends: others that lock it wait. Await it before other calls. */
  lock<K extends Encoding> (ks: Keyspace<K, any>, key: In<K>, options?: { shared?: boolean }): Promise<void>
  savepoint (): number
  /** Undoes all writes since a savepoint. Later ones end; this one stays. */
  rollbackTo (savepoint: number): void
  commit (): Promise<number>
  rollback (): void
}

export interface TransactionOptions {
  isolation?: Isolation
  durability?: Durability
}

/** A change made by a commit. A program has to expect new kinds. */
export interface Change {
  change: 'put' | 'merge' | 'delete' | 'expire' | 'delete_range' | 'named' | 'unnamed' | 'other' | string
  /** The keyspace's current name, unless it was dropped. */
  keyspace?: string
  keyspaceId?: number
  /** The key; for `delete_range` the first key. */
  key?: Buffer
  /** The value, or the operand of a merge. */
  value?: Buffer
  /** The first key behind a removed range. Undefined: the range has no end. */
  end?: Buffer
  /** When a value that was put expires, in milliseconds since 1970. */
  expiresAt?: number
  /** When an operand was merged, in milliseconds since 1970. */
  mergedAt?: number
  /** Milliseconds that a value lasts which begins with the operand. Undefined: it does not expire. */
  lifetime?: number
}

export interface Commit { seqno: number, changes: Change[] }

export interface FeedOptions {
  /** The last commit that was processed; 0 is before the first. Default: the newest. */
  after?: number
  /** Whether the loop waits for further commits. Default true. */
  wait?: boolean
  /** Ends the loop. */
  signal?: AbortSignal
}

/** An open database. */
export class Db implements AsyncDisposable {
  private constructor ()
  /** Opens the database in a directory, or creates it. */
  static open (path: string | URL, options?: OpenOptions): Promise<Db>
  static openSync (path: string | URL, options?: OpenOptions): Db
  /** Opens a database in memory, which ends when it is closed. */
  static memory (options?: OpenOptions): Db
  readonly path: string
  readonly isOpen: boolean
  /** The number of the newest commit that readers see. */
  readonly newestCommit: number
  /** Waits for calls that are under way, makes all commits durable, and closes the database. */
  close (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
  /** Returns the keyspace of a name. A missing one is created, unless `create` is false: the call waits. */
  keyspace<K extends Encoding = 'buffer', V extends Encoding = 'buffer'> (
    name: string, options?: KeyspaceEncodings<K, V> & { create?: boolean }): Keyspace<K, V>
  createKeyspace<K extends Encoding = 'buffer', V extends Encoding = 'buffer'> (
    name: string, options?: KeyspaceEncodings<K, V> & NewKeyspaceOptions): Promise<Keyspace<K, V>>
  dropKeyspace (name: string): Promise<void>
  renameKeyspace (from: string, to: string): Promise<void>
  /** The names of all keyspaces, in order. */
  keyspaces (): string[]
  snapshot (): Snapshot
  batch (): Batch
  /** Begins a transaction: end it by commit or rollback. */
  begin (options?: TransactionOptions): Promise<Transaction>
  /**
   * Runs a function in a transaction and commits it. After a conflict or deadlock it runs again, so it must
   * have no other effects. In an exclusive transaction it must not await writes outside of the transaction.
   */
  transact<T> (body: (t: Transaction) => T | Promise<T>,
    options?: TransactionOptions & { attempts?: number }): Promise<T>
  /** Every durable commit after a commit, as it happens. Needs the option `feed` of `open`. */
  feed (options?: FeedOptions): AsyncIterable<Commit>
  /** Makes all earlier commits durable. */
  sync (): Promise<void>
  /** Writes what is in memory to tables. */
  flush (): Promise<void>
  /** Compacts the whole database into one run without garbage. */
  compact (): Promise<void>
  /** Reads all files and checks them. Rejects if there is damage: see `problems` of the error. */
  check (): Promise<CheckReport>
  /** Copies the database as of now into a new directory, and resolves to its last commit. */
  checkpoint (directory: string | URL): Promise<number>
  /** Figures by name: sizes, counts, times in seconds. */
  stats (): Record<string, number>
  health (): { status: 'ok' | 'no-space' | 'retrying' | 'poisoned' | 'closed' | string, error?: string }
}

/** Keys of several fields, in the tuple encoding of FoundationDB: their bytes sort as the fields do. */
export namespace tuple {
  class Float {
    constructor (value: number | Uint8Array)
    readonly value: number
    readonly bytes: Uint8Array
  }
  class Double {
    constructor (value: number | Uint8Array)
    readonly value: number
    readonly bytes: Uint8Array
  }
  class Uuid {
    constructor (value: string | Uint8Array)
    readonly bytes: Uint8Array
    toString (): string
  }
  /** A safe integer is an integer; another number is a double. */
  type Field = null | string | number | bigint | boolean | Uint8Array | Float | Double | Uuid
    | readonly Field[]
  /** Integers are numbers if they are safe. Floats and doubles keep all their bits. */
  type Unpacked = null | string | number | bigint | boolean | Buffer | Float | Double | Uuid | Unpacked[]
  function pack (fields: readonly Field[]): Buffer
  function unpack (key: Uint8Array): Unpacked[]
}
