//! Rows in a table, keys of two fields, and a transaction: `cargo run -p esker-client --example rows --
//! redis://127.0.0.1:6379/`

use esker_client::{Client, Error, Names, Result, Test, key, ob};

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    for line in run(&url)? {
        println!("{line}");
    }
    Ok(())
}

/// Runs the example and returns the lines to print.
pub fn run(url: &str) -> Result<Vec<String>> {
    let mut client = Client::connect(url)?;
    let mut shown = Vec::new();
    client.run(ob::use_keyspace("example"))?;

    for (name, age, money) in [("ann", "42", "10"), ("bob", "7", "0"), ("cid", "9", "5")] {
        client.run(ob::put("users", name, [("age", age), ("money", money)]))?;
    }
    let children =
        ob::slice("users").columns(Names::new().one("age")).matching("age", Test::Less("18".into()));
    for row in client.pages(children.or_matching("age", Test::AtLeast("7".into())).max_keys(2)) {
        let row = row?;
        shown.push(format!("{} is {}", row.key.escape_ascii(), row.columns[0].data.escape_ascii()));
    }

    // Keys are ordered by user, then by time.
    for (user, second, page) in [("ann", 1000_u64, "/late"), ("ann", 7, "/early"), ("bob", 8, "/")] {
        client.run(ob::put("visits", key::encode(&(user, second))?, [("page", page)]))?;
    }
    let of_ann = ob::slice("visits").keys(Names::new().prefix(key::encode(&"ann")?));
    for row in client.run(of_ann.request())?.rows {
        let (user, second): (String, u64) = key::decode(&row.key)?;
        shown.push(format!("{user} at {second}: {}", row.columns[0].data.escape_ascii()));
    }

    transfer(&mut client, "ann", "bob", 4)?;
    if let Err(Error::Server { message, .. }) = transfer(&mut client, "cid", "bob", 100) {
        shown.push(message);
    }
    let money = client.run(ob::get("users", "bob", ["money"]))?;
    shown.push(format!("bob has {}", money[0].as_deref().unwrap_or_default().escape_ascii()));
    Ok(shown)
}

/// Transfers money if the balance suffices. Begins again if another client changes one of the two balances
/// meanwhile.
fn transfer(client: &mut Client, from: &str, to: &str, amount: i64) -> Result<()> {
    client.transact(ob::begin(), |client| {
        client.run(ob::watch("users").keys(&Names::new().list([from, to])).request())?;
        let mut money = |user: &str| -> Result<i64> {
            let data = client.run(ob::get("users", user, ["money"]))?;
            Ok(data[0].as_deref().map_or(0, |data| String::from_utf8_lossy(data).parse().unwrap_or(0)))
        };
        let (of_from, of_to) = (money(from)?, money(to)?);
        if of_from < amount {
            return Err(Error::Server { code: "ERR".to_owned(), message: format!("{from} has {of_from}") });
        }
        let set = |user: &str, money: i64| ob::put("users", user, [("money", money.to_string())]);
        client.run(set(from, of_from - amount))?;
        client.run(set(to, of_to + amount))
    })
}
