//! Rules and what they allow, as readable text.

use super::secret::Secret;
use super::*;
use crate::command::uses::{READ, WRITE};
use crate::commands;
use crate::resp::Request;

fn check(user: &User, text: &str) -> String {
    let request = Request::of(text.split(' '));
    let found = commands::commands().enumerate().find(|(_, command)| request.is(0, command.name));
    let (at, command) = found.unwrap();
    match user.check(at, command, &request) {
        Ok(()) => "yes".to_owned(),
        Err(denied) => format!("{}:{}", denied.reason.name(), String::from_utf8_lossy(&denied.object)),
    }
}

fn user(rules: &str) -> User {
    let mut user = User::new("u", commands::specs());
    let rules: Vec<_> = rules.split(' ').map(str::as_bytes).collect();
    user.apply(&rules).unwrap();
    user
}

#[test]
fn rules_allow_what_they_say() {
    let table = "
        +get ~k*                            | get k1           | yes
        +get ~k*                            | get x            | key:x
        +get ~k*                            | set k1 v         | command:set
        +@all -@dangerous ~*                | get x            | yes
        +@all -@dangerous ~*                | flushall         | command:flushall
        +@all -@dangerous ~*                | client kill a    | command:client|kill
        +@all -@dangerous ~*                | client id        | yes
        +@all -client|id                    | client id        | command:client|id
        +@all -client|id                    | client info      | yes
        +config|get                         | config get x     | yes
        +config|get                         | config set x y   | command:config|set
        +config|get -config                 | config get x     | command:config|get
        +@all %R~a* %W~b*                   | copy a1 b1       | yes
        +@all %R~a* %W~b*                   | copy b1 a1       | key:b1
        +@all %R~a* %W~b*                   | set b1 v         | yes
        +@all %R~a* %W~b*                   | set b1 v get     | key:b1
        +@all %R~a* %W~b*                   | sort a1 store a2 | key:a2
        +@all %R~a* %W~b*                   | georadius a1 0 0 1 km store a2 | key:a2
        +@all %R~a* %W~b*                   | georadius a1 0 0 1 km store b1 storedist a2 | key:a2
        +@all %R~a* %W~b*                   | geosearchstore b1 a1 fromlonlat 0 0 byradius 1 km | yes
        +@all %R~a* %W~b*                   | sort a1 by x_*   | key:*
        +@all %R~a* %W~b*                   | zunionstore b1 2 a1 a2 | yes
        +@all %R~a* %W~b*                   | rename a1 b1     | key:a1
        +@all %R~a* %W~b*                   | eval x 1 a1      | key:a1
        +@all ~a*                           | es.range a b     | key:*
        +@all %R~*                          | es.range a b     | yes
        +@all %R~*                          | es.delrange a b  | key:*
        +@all ~* &news*                     | publish news1 x  | yes
        +@all ~* &news*                     | publish other x  | channel:other
        +@all ~* &news*                     | psubscribe news* | yes
        +@all ~* &news*                     | psubscribe new*  | channel:new*
        +@all ~* &a &p:* &x?                | es.listen a p:1  | yes
        +@all ~* &a &p:* &x?                | es.notify b text | channel:b
        +@all ~* &a &p:* &x?                | ob.listen a b    | channel:b
        +@all ~* &a &p:* &x?                | ob.notify a x1 b | channel:b
        +@all ~* &a &p:* &x?                | ob.plisten p: p:1 | yes
        +@all ~* &a &p:* &x?                | ob.plisten p     | channel:p
        +@all ~* &a &p:* &x?                | ob.plisten x     | channel:x
        +@all %R~user:* %R~one %W~w*        | es.watch key user:7 prefix user:1 KEY one | yes
        +@all %R~user:* %R~one %W~w*        | es.watch key user:7 key two | key:two
        +@all %R~user:* %R~one %W~w*        | es.watch prefix use | key:use
        +@all %R~user:* %R~one %W~w*        | es.watch prefix one | key:one
        +@all %R~user:* %R~one %W~w*        | es.watch key w1  | key:w1
        +get ~a (~b +set)                   | set b v          | yes
        +get ~a (~b +set)                   | get b            | key:b
        +get ~a (~b +set)                   | del a            | command:del
        nocommands                          | auth x           | yes";
    for line in table.lines().filter(|line| line.contains('|')) {
        let line = line.replace("client|", "client!").replace("config|", "config!");
        let parts: Vec<_> = line.split(" | ").map(|part| part.trim().replace('!', "|")).collect();
        assert_eq!(check(&user(&parts[0]), &parts[1]), parts[2], "acl.1 {line}");
    }
}

#[test]
fn rules_know_every_category_of_a_command() {
    for command in commands::commands() {
        for category in command.categories_with(command.flags) {
            assert!(
                crate::command::spec::CATEGORIES.contains(&&category[1..]),
                "{category} of {}",
                command.name
            );
        }
    }
    assert_eq!(check(&user("+@rows ~*"), "ob.tables"), "yes");
    assert_eq!(check(&user("+@esker ~*"), "es.range a b"), "yes");
}

#[test]
fn a_line_makes_the_same_user() {
    for rules in [
        "on nopass ~* &* +@all",
        "off >secret %R~a* ~b &c +@read -get +config|get (~z +set)",
        "on #ab nocommands",
    ] {
        let hash = format!("#{}", "ab".repeat(32));
        let made = user(&rules.replace("#ab", &hash));
        let line = made.line();
        let read = file::parse(&line, commands::specs()).unwrap();
        assert_eq!(read["u"].line(), line);
    }
    let line = user("off %R~a* ~b +@read +config|get").line();
    assert_eq!(line, "user u off %R~a* ~b resetchannels -@all +@read +config|get");
    assert_eq!(file::parse("user a on\nuser a off\n", commands::specs()).unwrap_err().0, 2);
    assert!(file::parse("user a +nosuch", commands::specs()).unwrap_err().1.contains("Unknown command"));
    assert!(file::parse("# of Ann\n\nnot a user", commands::specs()).is_err());
}

#[test]
fn wrong_rules_are_refused_and_change_nothing() {
    let acl = Acl::new(commands::specs(), &Options::default()).unwrap();
    for rule in ["foo", "+nosuch", "+@nosuch", "+config|nosuch", "%X~a", "%R", "#zz", "<none", "!zz", "(~k"] {
        let refused = acl.set("new", &[b"on", rule.as_bytes()]);
        assert!(refused.unwrap_err().starts_with("ERR "), "{rule}");
    }
    assert!(acl.user("new").is_none());
    assert!(acl.set("a b", &[]).is_err());
    assert!(!acl.set("new", &[b">hidden pass", b"foo"]).unwrap_err().contains("hidden"));
}

#[test]
fn keys_are_used_as_commands_say() {
    for (text, uses) in [("get a", READ), ("append a b", WRITE), ("incr a", READ | WRITE), ("watch a", 0)] {
        let request = Request::of(text.split(' '));
        let command = commands::commands().find(|command| request.is(0, command.name)).unwrap();
        let found: Vec<_> =
            command.key_uses(&request).iter().map(|(key, used)| (key.to_vec(), used.rights())).collect();
        assert_eq!(found, [(b"a".to_vec(), uses)], "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_known_once_it_was_proven() {
    let acl = Acl::new(commands::specs(), &Options::default()).unwrap();
    let fast = format!("#{}", secret_of("quick"));
    acl.set("ann", &[b"on", b">slow", fast.as_bytes()]).unwrap();
    assert!(acl.log_in(b"ann", b"quick").is_some());
    assert!(acl.log_in(b"ann", b"slow").is_none());
    acl.prove(b"ann", b"wrong").await;
    assert!(acl.log_in(b"ann", b"wrong").is_none());
    acl.prove(b"ann", b"slow").await;
    assert!(acl.log_in(b"ann", b"slow").is_some());
    acl.set("ann", &[b"<slow", b">other"]).unwrap();
    assert!(acl.log_in(b"ann", b"slow").is_none(), "a proof ends with its hash");
    acl.set("ann", &[b"off"]).unwrap();
    assert!(acl.log_in(b"ann", b"quick").is_none());
}

fn secret_of(password: &str) -> String {
    use sha2::{Digest, Sha256};
    Secret::Fast(Sha256::digest(password).into()).text()
}
