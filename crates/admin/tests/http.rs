//! What the listener answers, and what it refuses.

use crate::common::{full, get, say, serving};
use forebay_admin::{Admin, Status};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK";

#[test]
fn a_process_is_alive_before_it_is_ready() {
    let admin = Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), "worker").unwrap();
    let address = admin.address();
    assert_eq!(get(address, "/healthz"), (OK.to_owned(), "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz"), ("HTTP/1.1 503 Service Unavailable".into(), "it is starting\n".into()));
    assert!(get(address, "/metrics").1.contains("\nforebay_ready 0\n"));
    admin.serve("", |status| status);
    assert_eq!(get(address, "/readyz"), (OK.to_owned(), "ready\n".to_owned()));
    assert!(get(address, "/metrics").1.contains("\nforebay_ready 1\n"));
}

#[test]
fn the_status_is_what_was_gathered() {
    let admin = serving();
    let (line, body) = get(admin.address(), "/api/status");
    assert_eq!(line, OK);
    let found: Status = serde_json::from_str(&body).unwrap();
    assert_eq!((found.process.role.as_str(), found.process.address.as_str()), ("serve", "redis://here"));
    assert_eq!(Status { process: full().process, ..found }, full());
}

#[test]
fn the_page_takes_everything_from_here() {
    let admin = serving();
    for path in ["/", "/icon.svg", "/page.css", "/page.js"] {
        let (line, body) = get(admin.address(), path);
        assert_eq!(line, OK, "{path}");
        // Names of XML's vocabularies are no addresses.
        let body = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains("://") && !body.contains("innerHTML"), "{path}");
    }
    let answer = say(admin.address(), b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("content-security-policy: default-src 'self'"), "{answer}");
}

#[test]
fn what_is_no_request_of_an_operator_is_refused() {
    let admin = serving();
    let first_line = |bytes: &[u8]| say(admin.address(), bytes).lines().next().unwrap_or_default().to_owned();
    let close = "Connection: close\r\n\r\n";
    assert_eq!(get(admin.address(), "/etc/passwd").0, "HTTP/1.1 404 Not Found");
    let other_site = format!("GET / HTTP/1.1\r\nHost: example.org\r\n{close}");
    assert_eq!(first_line(other_site.as_bytes()), "HTTP/1.1 403 Forbidden");
    let post = format!("POST /api/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n{close}");
    assert_eq!(first_line(post.as_bytes()), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(first_line(b"SET key value\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let long = format!("GET /{} HTTP/1.1\r\n{close}", "x".repeat(1 << 20));
    assert!(!first_line(long.as_bytes()).contains("200"));
    let many = format!("GET / HTTP/1.1\r\n{}{close}", "A: b\r\n".repeat(1000));
    assert_eq!(first_line(many.as_bytes()), "HTTP/1.1 431 Request Header Fields Too Large");
    assert_eq!(get(admin.address(), "/healthz").0, OK);
}

#[test]
fn slow_clients_have_bounds() {
    let admin = serving();
    let connect = || {
        let mut stream = TcpStream::connect(admin.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(b"GET / HT");
        stream
    };
    // More connections than allowed: the surplus is closed at once, the others when their request does not come.
    let mut slow: Vec<TcpStream> = (0..64).map(|_| connect()).collect();
    for stream in &mut slow {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
    }
    assert_eq!(get(admin.address(), "/healthz").0, OK);
}

#[test]
fn what_cannot_be_gathered_is_an_answer() {
    let admin = Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), "serve").unwrap();
    admin.serve("", |_| panic!("planted"));
    assert_eq!(get(admin.address(), "/metrics").0, "HTTP/1.1 500 Internal Server Error");
    assert_eq!(get(admin.address(), "/healthz").0, OK);
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let admin = serving();
    let error = Admin::start(admin.address(), "serve").unwrap_err();
    assert!(error.to_string().starts_with("listening for operators on 127.0.0.1:"), "{error}");
    let address = admin.address();
    drop(admin);
    assert!(Admin::start(address, "serve").is_ok(), "it was let go");
}
