//! Users: what they may do, changes of that, and the file that holds them.

use forebay::{Options, Store};
use forebay_env::{Clock, SystemClock};
use forebay_redis_differential::client::{Client, Value};
use forebay_server::{Server, ServerOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

fn serve(users_file: Option<PathBuf>, password: Option<&str>) -> Result<Server, forebay_server::Error> {
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let password = password.map(|password| password.as_bytes().to_vec());
    Server::start(store, ServerOptions { address, users_file, password, ..ServerOptions::default() })
}

fn connect(server: &Server) -> Client {
    Client::connect(server.address().port()).unwrap()
}

/// A reply as text: a text, a number, or several.
fn said(client: &mut Client, request: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    client.call(&words).unwrap().to_string()
}

/// Whether the server ends a connection.
fn ends(client: &mut Client) -> bool {
    let clock = SystemClock::new();
    (0..2000).any(|_| {
        clock.sleep(Duration::from_millis(5));
        client.call(&["PING"]).is_err()
    })
}

#[test]
fn users_may_do_what_they_may() {
    let server = serve(None, None).unwrap();
    let (mut admin, mut alice) = (connect(&server), connect(&server));
    assert_eq!(said(&mut admin, "ACL SETUSER alice on >secret +@all -@admin ~a* %R~r* &news"), "+OK");
    assert!(said(&mut alice, "AUTH alice wrong").starts_with("-WRONGPASS"));
    assert_eq!(said(&mut alice, "AUTH alice secret"), "+OK");
    assert_eq!(said(&mut alice, "ACL WHOAMI"), "\"alice\"");
    assert_eq!(said(&mut alice, "SET a1 x"), "+OK");
    assert_eq!(said(&mut alice, "GET r1"), "null");
    let keys = "-NOPERM this user has no permissions to access one of the keys used as arguments";
    assert_eq!(said(&mut alice, "SET r1 x"), keys);
    assert_eq!(said(&mut alice, "MGET a1 b"), keys);
    let command = "-NOPERM this user has no permissions to run the 'config|get' command";
    assert_eq!(said(&mut alice, "CONFIG GET port"), command);
    let channels = "-NOPERM this user has no permissions to access one of the channels used as arguments";
    assert_eq!(said(&mut alice, "PUBLISH other x"), channels);
    let Value::Many(_, log) = admin.call(&["ACL", "LOG"]).unwrap() else { panic!("no list") };
    let shown: Vec<String> = log.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert!(
        shown[0].contains("\"channel\" \"context\" \"toplevel\" \"object\" \"other\" \"username\" \"alice\""),
        "{shown:?}"
    );
    assert!(shown[4].contains("\"auth\"") && shown[4].contains("\"object\" \"AUTH\""), "{shown:?}");
    // Queued commands are checked again when they are carried out.
    assert_eq!(said(&mut alice, "MULTI"), "+OK");
    assert_eq!(said(&mut alice, "GET b"), keys);
    assert!(said(&mut alice, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(said(&mut alice, "MULTI"), "+OK");
    assert_eq!(said(&mut alice, "GET a1"), "+QUEUED");
    assert_eq!(said(&mut admin, "ACL SETUSER alice -get"), "+OK");
    let refused = said(&mut alice, "EXEC");
    assert!(refused.contains("-NOPERM ACLs rules changed between"), "{refused}");
    assert!(refused.contains("reason: no permission to execute the command or subcommand"), "{refused}");
    let denied = said(&mut admin, "ACL LOG 1");
    assert!(denied.contains("\"command\" \"context\" \"multi\" \"object\" \"get\""), "{denied}");
    assert_eq!(said(&mut admin, "ACL LOG RESET"), "+OK");
    // A client that monitors does not see a secret.
    assert!(said(&mut admin, "CLIENT LIST").contains("user=alice"));
    // A subscription that is no longer allowed ends the connection; so does the end of the user.
    let mut listener = connect(&server);
    assert_eq!(said(&mut listener, "HELLO 3 AUTH alice secret").chars().next(), Some('%'));
    assert!(said(&mut listener, "SUBSCRIBE news").contains("subscribe"));
    assert_eq!(said(&mut admin, "ACL SETUSER alice resetchannels"), "+OK");
    assert!(ends(&mut listener));
    assert_eq!(said(&mut alice, "GET a1"), "-NOPERM this user has no permissions to run the 'get' command");
    assert_eq!(said(&mut admin, "ACL DELUSER alice bob"), ":1");
    assert!(ends(&mut alice));
}

#[test]
fn only_who_may_read_all_keys_sorts_by_patterns() {
    let server = serve(None, None).unwrap();
    let (mut admin, mut user) = (connect(&server), connect(&server));
    assert_eq!(said(&mut admin, "ACL SETUSER u on nopass +@all ~a*"), "+OK");
    assert_eq!(said(&mut admin, "MSET w_1 2 w_2 1"), "+OK");
    assert_eq!(said(&mut admin, "RPUSH a 1 2"), ":2");
    assert_eq!(said(&mut user, "AUTH u x"), "+OK");
    let by = "-ERR BY option of SORT denied due to insufficient ACL permissions.";
    let get = "-ERR GET option of SORT denied due to insufficient ACL permissions.";
    for (words, refusal) in [
        ("", by),
        // One selector allows all keys and another one the command.
        ("(%R~* +get)", by),
        ("clearselectors %W~*", by),
        ("resetkeys %R~*", ""),
        ("resetkeys ~a* (%R~* +sort +sort_ro)", ""),
    ] {
        if !words.is_empty() {
            assert_eq!(said(&mut admin, &format!("ACL SETUSER u {words}")), "+OK");
        }
        for command in ["SORT", "SORT_RO"] {
            let sorted = said(&mut user, &format!("{command} a BY w_* GET w_*"));
            assert_eq!(sorted, if refusal.is_empty() { "*[\"1\" \"2\" ]" } else { refusal }, "{words}");
            let got = said(&mut user, &format!("{command} a GET #"));
            assert_eq!(got, if refusal.is_empty() { "*[\"1\" \"2\" ]" } else { get }, "{words}");
            assert_eq!(said(&mut user, &format!("{command} a BY nosort")), "*[\"1\" \"2\" ]");
        }
        if !refusal.is_empty() {
            let raised = said(&mut user, "EVAL return(redis.call('sort','a','GET','w_*')) 0");
            assert!(raised.starts_with(get), "{raised}");
        }
    }
}

#[test]
fn what_only_reads_needs_the_right_to_read() {
    let server = serve(None, None).unwrap();
    let mut admin = connect(&server);
    assert_eq!(said(&mut admin, "ACL SETUSER u %R~r* %W~w* %RW~b* +@all"), "+OK");
    for (request, denied) in [
        ("PFCOUNT r1", ""),
        ("PFCOUNT w1", "w1"),
        ("PFMERGE b1 r1", ""),
        ("PFMERGE w1 r1", "w1"),
        ("PFMERGE b1 w1", "w1"),
        ("BITFIELD r1", ""),
        ("BITFIELD r1 GET u8 0 OVERFLOW SAT get u8 8", ""),
        ("BITFIELD r1 GET u8 0 SET u8 0 1", "r1"),
        ("BITFIELD r1 GET u8", "r1"),
        ("BITFIELD r1 NOSUCH", "r1"),
        ("BITFIELD w1 GET u8 0", "w1"),
        ("BITFIELD b1 SET u8 0 1", ""),
    ] {
        let judged = said(&mut admin, &format!("ACL DRYRUN u {request}"));
        let refusal = format!("This user has no permissions to access the '{denied}' key");
        let refusal = format!("\"{}\"", refusal.escape_default());
        let expected = if denied.is_empty() { "+OK" } else { &refusal };
        assert_eq!(judged, expected, "{request}");
    }
}

#[test]
fn a_password_is_that_of_the_user_default() {
    let server = serve(None, Some("first")).unwrap();
    let mut client = connect(&server);
    assert!(said(&mut client, "GET a").starts_with("-NOAUTH"));
    assert_eq!(said(&mut client, "AUTH first"), "+OK");
    assert_eq!(said(&mut client, "CONFIG SET requirepass second"), "+OK");
    assert_eq!(said(&mut client, "GET a"), "null");
    assert_eq!(said(&mut client, "RESET"), "+RESET");
    assert!(said(&mut client, "GET a").starts_with("-NOAUTH"));
    assert!(said(&mut client, "AUTH first").starts_with("-WRONGPASS"));
    assert_eq!(said(&mut client, "AUTH default second"), "+OK");
    assert_eq!(said(&mut client, "CONFIG SET requirepass "), "+OK");
    let mut other = connect(&server);
    assert_eq!(said(&mut other, "GET a"), "null");
}

#[test]
fn a_file_holds_users() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.acl", std::process::id()));
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write(
        "# Users.\n\nuser default on nopass ~* &* +@all\nuser bob on >b +@read ~b* (+set ~s*)\nuser eve on nopass +ping\n",
    );
    let server = serve(Some(path.clone()), None).unwrap();
    let (mut admin, mut bob, mut eve) = (connect(&server), connect(&server), connect(&server));
    assert_eq!(said(&mut bob, "AUTH bob b"), "+OK");
    assert_eq!(said(&mut bob, "SET s1 x"), "+OK");
    assert_eq!(said(&mut eve, "AUTH eve any"), "+OK");
    assert_eq!(said(&mut admin, "ACL SETUSER carol on >c +get ~c*"), "+OK");
    assert_eq!(said(&mut admin, "ACL SAVE"), "+OK");
    let saved = std::fs::read_to_string(&path).unwrap();
    assert!(saved.contains(
        "user carol on #2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6 ~c* resetchannels -@all +get\n"
    ));
    assert!(saved.contains("(~s* resetchannels -@all +set)\n"), "{saved}");
    // Users that are no longer in the file are gone, and the others have what it says.
    write("user bob on >b +@write ~b*\n");
    assert_eq!(said(&mut admin, "ACL LOAD"), "+OK");
    assert!(ends(&mut eve));
    assert!(said(&mut bob, "SET s1 x").starts_with("-NOPERM"));
    assert_eq!(said(&mut bob, "SET b1 x"), "+OK");
    assert_eq!(said(&mut admin, "ACL USERS"), "*[\"bob\" \"default\" ]");
    // The default user stays the same if the file does not name it: it may have a password.
    assert_eq!(said(&mut admin, "CONFIG SET requirepass secret"), "+OK");
    assert_eq!(said(&mut admin, "ACL LOAD"), "+OK");
    let mut stranger = connect(&server);
    assert!(said(&mut stranger, "GET a").starts_with("-NOAUTH"));
    // After authentication, requests may be as large as those of that user.
    stranger
        .send([
            &["AUTH", "secret"].map(|word| word.as_bytes().to_vec())[..],
            &[b"SET".to_vec(), b"b1".to_vec(), vec![b'x'; 20_000]],
        ])
        .unwrap();
    assert_eq!(stranger.receive().unwrap().to_string(), "+OK");
    assert_eq!(stranger.receive().unwrap().to_string(), "+OK");
    // A wrong file changes nothing, and the error says where it is wrong.
    write("user bob on\nuser bob off\n");
    assert!(said(&mut admin, "ACL LOAD").contains(".acl:2: the user is there twice"));
    write("user bob +nosuch\n");
    assert!(said(&mut admin, "ACL LOAD").contains(".acl:1: Error in ACL SETUSER modifier '+nosuch'"));
    assert_eq!(said(&mut bob, "SET b1 x"), "+OK");
    drop(server);
    let error = serve(Some(path.clone()), None).unwrap_err();
    assert!(error.to_string().contains(".acl:1:"), "{error}");
    std::fs::remove_file(path).unwrap();
}
