import { AbstractLevel, AbstractDatabaseOptions, AbstractSnapshot } from 'abstract-level'
import { Db, OpenOptions } from './index'

type Format = string | Buffer | Uint8Array

export interface EskerLevelOptions<KDefault, VDefault>
  extends AbstractDatabaseOptions<KDefault, VDefault>, Omit<OpenOptions, 'isolation'> {
  /** The keyspace of the entries. Default `default`. */
  keyspace?: string
}

/** A database of abstract-level on Esker. `put`, `del` and `batch` take `sync: true` to wait for the disk. */
export class EskerLevel<KDefault = string, VDefault = string>
  extends AbstractLevel<Format, KDefault, VDefault> {
  constructor (location: string, options?: EskerLevelOptions<KDefault, VDefault>)
  readonly location: string
  /** The database below, while this is open. */
  readonly db: Db | null
  approximateSize (start: KDefault, end: KDefault): Promise<number>
  approximateSize<K = KDefault> (start: K, end: K, options: { keyEncoding?: string }): Promise<number>
  compactRange (start: KDefault, end: KDefault): Promise<void>
  compactRange<K = KDefault> (start: K, end: K, options: { keyEncoding?: string }): Promise<void>
  getSync (key: KDefault): VDefault | undefined
  snapshot (): AbstractSnapshot
  /** Removes the files of a database that is not open, and its directory unless it has other files. */
  static destroy (location: string): Promise<void>
}
