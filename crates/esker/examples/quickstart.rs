//! The example of the README: keyspaces, a transaction, a snapshot, a range removal, a range.

fn main() -> esker::Result<()> {
    let db = esker::Db::open("data")?;
    let users = db.keyspace("users")?;

    users.put("ann", "1")?; // durable when it returns
    assert_eq!(users.get("ann")?.as_deref(), Some(&b"1"[..]));

    db.transact(|t| -> esker::Result<()> {
        // reads a snapshot, runs again after a conflict
        let n = t.get(&users, "ann")?.map_or(0, |value| value.len());
        t.put(&users, "bob", n.to_string())
    })?;

    let snapshot = db.snapshot();
    users.delete_range("b"..)?;
    for entry in users.range("a".."c") {
        let (key, value) = entry?; // also .rev(), prefix(), keys(), cursor()
        println!("{key:?} = {value:?}");
    }
    assert_eq!((users.len()?, snapshot.len(&users)?), (1, 2));
    Ok(())
}
