// A program whose types tsc checks. It is not run.

import { Db, tuple, type EskerError, type Keyspace } from '../..'
import { EskerLevel } from '../../level'

interface User { name: string }

export async function main (): Promise<void> {
  await using db = await Db.open('data', { durability: 'buffered', feed: { bytes: 1 << 20 } })
  const users = db.keyspace('users', { keys: 'utf8', values: 'json' })
  const raw: Keyspace = db.keyspace('raw')
  const seqno: number = await users.put('ann', { name: 'Ann' }, { ttl: 1000 })
  const user: User | undefined = await users.get('ann')
  const value: Buffer | undefined = raw.getSync('key')
  for await (const [key, entry] of raw.range({ gte: 'a', lt: Buffer.from('b') })) {
    const both: Buffer[] = [key, entry]
    console.log(both, seqno, user, value)
  }
  for (const key of users.keys({ reverse: true, limit: 3 })) key.toUpperCase()
  // @ts-expect-error: keys are strings
  await users.get(1)
  // @ts-expect-error: there is no such option
  users.range({ gte: 'a', from: 'b' })
  const total: number = await db.transact(async (t) => {
    const old = await t.get(raw, 'n')
    t.put(raw, 'n', String(Number(old ?? 0) + 1))
    return 1
  }, { isolation: 'snapshot', attempts: 5 })
  using snapshot = db.snapshot()
  const texts: Array<Buffer | undefined> = await snapshot.getMany(raw, ['a', 'b'])
  const events = db.keyspace('events', { keys: 'tuple', values: 'utf8' })
  await events.put(['ann', 7n, new tuple.Double(1.5)], 'text')
  const fields: tuple.Unpacked[] = (await events.keys().toArray())[0]
  const level = new EskerLevel<string, User>('level', { valueEncoding: 'json' })
  const found: User | undefined = await level.get('ann')
  await level.sublevel('sub').put('a', 'b')
  for await (const commit of db.feed({ after: 0 })) console.log(commit.changes[0]?.keyspace)
  try {
    await db.batch().put(raw, 'a', 'b').delete(raw, 'c').commit({ durability: 'sync' })
  } catch (error) {
    console.log((error as EskerError).code, total, texts, fields, found)
  }
}
