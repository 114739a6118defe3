//! Turns of one connection, whose other end is a socket of the test.

use super::super::inbox::Resumed;
use super::super::socket::Socket;
use super::super::stream::Stream;
use super::super::wakers::Waker;
use super::*;
use crate::admission::{Origin, Standing};
use crate::{AccessKey, Backing, Region, turns};
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{Clock, SystemClock};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const REGION_BYTES: u64 = 1 << 20;

struct Bench {
    client: TcpStream,
    events: Arc<Events>,
    link: Arc<NodeLink>,
    connection: Connection,
    key: AccessKey,
    scratch: Buffer,
    resumed: Arc<Resumed>,
    sending: Option<JoinHandle<()>>,
}

impl Bench {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let outlet = || {
            let near = listener.accept().map(|(near, _)| near);
            let stream = Stream::plain(Socket::adopt(near.unwrap(), None).unwrap());
            Arc::new(Outlet::new(stream, "a test".into(), Duration::from_secs(10)))
        };
        let own = outlet();
        let _control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let events = Arc::new(Events::default());
        let turn = turns::Turn { party: 1, link: 1 };
        let who = (Origin::here(), Standing::Nothing);
        let link = Arc::new(NodeLink::new(turn, who, outlet(), Arc::clone(&events)).unwrap());
        let region = Region::allocate(REGION_BYTES as usize, Backing::Private).unwrap();
        let key = link.grant(&region, 0, REGION_BYTES, Rights::ALL).unwrap();
        let endpoint = link.attach(&own).unwrap();
        let resumed = Arc::new(Resumed::new(Arc::new(Waker::new().unwrap())));
        let inbox = Arc::new(Inbox::new(1, Arc::clone(&resumed)));
        let role = Role::Endpoint(Arc::clone(&link), endpoint);
        let connection = Connection::new(own, role, inbox, Vec::new());
        Self { client, events, link, connection, key, scratch: Buffer::default(), resumed, sending: None }
    }

    /// Sends frames from a thread of its own, because sockets may not take all at once.
    fn send(&mut self, frames: &[Frame<'_>]) {
        let mut bytes = Buffer::default();
        for (number, frame) in (1..).zip(frames) {
            frame.encode(number, &mut bytes);
        }
        let mut client = self.client.try_clone().unwrap();
        let sending = spawn("sends", move || client.write_all(bytes.filled()).unwrap()).unwrap();
        // Until it has written all, or as much as goes in.
        SystemClock::new().sleep(Duration::from_millis(20));
        self.sending = Some(sending);
        self.connection.readable = true;
    }

    fn read(&self, length: u32) -> Frame<'static> {
        Frame::Read(Target { at: self.key.at(0), length })
    }

    fn turn(&mut self, allowance: Allowance) -> Turn {
        self.connection.turn(&mut self.scratch, &self.events, allowance).unwrap()
    }

    /// Takes turns until this many bytes have been sent. Turns with nothing to do do not count.
    fn turns_until_sent(&mut self, bytes: usize, allowance: Allowance) -> usize {
        let (mut turns, mut sent) = (0, 0);
        for _ in 0..10_000 {
            match self.turn(allowance) {
                Turn::Stalled => panic!("there are no messages"),
                Turn::Idle => SystemClock::new().sleep(Duration::from_millis(1)),
                Turn::Again | Turn::Full => {}
            }
            self.connection.readable = true;
            turns += usize::from(self.connection.worked);
            sent += self.sent();
            if sent == bytes {
                self.sending.take().unwrap().join().unwrap();
                return turns;
            }
        }
        panic!("{sent} bytes instead of {bytes}");
    }

    /// Bytes that the node has sent.
    fn sent(&self) -> usize {
        self.client.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 20];
        let mut sent = 0;
        while let Ok(count) = (&self.client).read(&mut bytes) {
            sent += count;
        }
        sent
    }
}

#[test]
fn a_turn_that_others_wait_for_costs_little() {
    let crowded = Allowance::crowded(1 << 20);
    for (length, count) in [(8, 600), (4096, 200), (64 << 10, 8)] {
        let mut bench = Bench::new();
        let read = bench.read(length);
        bench.send(&vec![read; count]);
        let operation = OPERATION_COST + 48 + 16 + length as usize;
        let most = CROWDED_COST + operation + CROWDED_SEND_BYTES + operation + TURN_COST;
        let (mut served, all) = (0, count * (16 + length as usize));
        for _ in 0..10_000 {
            bench.connection.readable = true;
            bench.turn(crowded);
            let cost = bench.connection.cost;
            assert!(cost <= most, "{cost} for {length} bytes each, of at most {most}");
            served += bench.sent();
            if served == all {
                break;
            }
        }
        assert_eq!(served, all);
    }
}

#[test]
fn one_that_is_alone_has_long_turns() {
    let turns = |allowance| {
        let mut bench = Bench::new();
        let read = bench.read(8);
        bench.send(&vec![read; 600]);
        bench.turns_until_sent(600 * 24, allowance)
    };
    let (alone, crowded) = (turns(Allowance::alone(1 << 20)), turns(Allowance::crowded(1 << 20)));
    assert!(alone <= 2 && crowded >= 6, "{alone} turns alone, {crowded} in a crowd");
}

#[test]
fn long_frames_come_whole_in_short_turns() {
    let mut bench = Bench::new();
    let bytes = vec![7; MAX_PIECE_BYTES];
    let to = Target { at: bench.key.at(0), length: bytes.len() as u32 };
    bench.send(&vec![Frame::Write { to, immediate: None, bytes: &bytes }; 3]);
    let turns = bench.turns_until_sent(3 * 16, Allowance::crowded(1 << 20));
    assert!(turns <= 3 * 5, "{turns} turns for three frames");
}

#[test]
fn messages_without_room_stay_with_their_sender() {
    let mut bench = Bench::new();
    bench.send(&[Frame::Message(b"some bytes"); 40]);
    let alone = Allowance::alone(1 << 20);
    let mut taken = Vec::new();
    for expected in [16, 8, 8] {
        assert_eq!(bench.turn(alone), Turn::Stalled);
        let mut came = 0;
        while let (Some(event), _) = bench.events.next(Duration::ZERO).unwrap() {
            taken.push(event);
            came += 1;
        }
        assert!(came >= expected, "{came} came of {expected}");
        // It is not enough that they were taken: they wait until they are served.
        assert_eq!(bench.turn(alone), Turn::Stalled);
        assert!(bench.resumed.take().is_empty());
        taken.truncate(7);
        assert_eq!(bench.resumed.take(), [1]);
    }
    assert!(bench.link.is_alive());
}

#[test]
fn memory_of_one_that_waits_is_bounded() {
    const COUNT: usize = 60;
    let mut bench = Bench::new();
    bench.send(&[Frame::Message(&[7; 8 << 10]); COUNT]);
    let (mut came, mut most) = (0, 0);
    while came < COUNT {
        bench.connection.readable = true;
        bench.turn(Allowance::alone(1 << 20));
        most = most.max(bench.connection.leftover.capacity());
        while let (Some(_), _) = bench.events.next(Duration::ZERO).unwrap() {
            came += 1;
        }
    }
    assert!(most > MAX_FRAME_BYTES && most <= RECEIVE_BYTES, "{most} bytes");
    bench.turn(Allowance::alone(1 << 20));
    assert!(bench.connection.leftover.capacity() <= MAX_FRAME_BYTES);
    bench.sending.take().unwrap().join().unwrap();
}

#[test]
fn whoever_appends_holds_up_nobody() {
    let mut bench = Bench::new();
    let read = bench.read(8);
    bench.send(&[read]);
    let outlet = Arc::clone(&bench.connection.outlet);
    let out = outlet.lock();
    assert_eq!(bench.turn(Allowance::alone(1 << 20)), Turn::Again);
    drop(out);
    bench.turns_until_sent(16 + 8, Allowance::alone(1 << 20));
}
