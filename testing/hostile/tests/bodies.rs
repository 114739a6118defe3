//! The raw client, written from the pages of `docs/formats`, makes the same bytes as the node's own code: a difference is a
//! fault of one of them.

use forebay_proto::calls::*;
use forebay_proto::replies::{self, DoorFigures, StoreEntry, StorePage, TenantFigures, TenantPage};
use forebay_proto::{
    Blob, Epoch, ExtentId, ExtentRange, GrantedExtent, Message, PROTOCOL_VERSION, Procedure, Purpose, Rest, SessionId,
    ShardId, ShardKey, StoreId, Text, gather, job_kind,
};
use forebay_raw_client::body::{Granted, Key, Range, Shard};
use forebay_raw_client::calls::{self, Reply as _};
use forebay_raw_client::jobs;
use forebay_table::BlockAddress;
use forebay_table::job::{SearchJob, SearchPlace, SearchedBlock, SearchedKey, SearchedTable};

fn text(text: &str) -> Text {
    Text::new(text).unwrap()
}

#[test]
fn bodies_are_as_the_node_reads_them() {
    const S: u64 = 0x0807_0605_0403_0201;
    let (session, raw) = (SessionId(S), Shard { store: 9, shard: 7 });
    let shard = ShardKey { store: StoreId(9), shard: ShardId(7) };
    let (epoch, extents) = (Epoch(5), vec![ExtentId(1), ExtentId(0x0203)]);
    let list = [1, 0x0203];
    let blob = || Blob::new(*b"blob").unwrap();
    macro_rules! same {
        ($($made:expr, $call:expr;)*) => {$({
            let (made, call) = ($made, $call);
            assert_eq!((made.procedure, made.body), (procedure(&call), call.encode()), stringify!($made));
        })*};
    }
    fn procedure<C: Call>(_: &C) -> u16 {
        C::PROCEDURE as u16
    }
    same! {
        calls::open_session("t", "me"),
            OpenSession { protocol: PROTOCOL_VERSION, tenant: text("t"), name: text("me"), capabilities: 0 };
        calls::renew(S, 3), Renew { session, reading_epoch: 3 };
        calls::close_session(S), CloseSession { session };
        calls::lease_extents(S, 7, calls::FLUSH), LeaseExtents { session, count: 7, purpose: Purpose::Flush };
        calls::lease_extents(S, 7, calls::COLLECTION), LeaseExtents { session, count: 7, purpose: Purpose::Collection };
        calls::return_extents(S, &list), ReturnExtents { session, extents: extents.clone() };
        calls::map_extents(S, raw, true, &list), MapExtents { session, shard, write: true, extents: extents.clone() };
        calls::release_extents(S, raw, 5, &list), ReleaseExtents { session, shard, epoch, extents };
        calls::list_extents(S, raw, 3), ListExtents { session, shard, from: ExtentId(3) };
        calls::create_store(S, "db", b"blob"), CreateStore { session, name: text("db"), config: blob() };
        calls::open_store(S, "db"), OpenStore { session, name: text("db") };
        calls::list_stores(S, "db"), ListStores { session, after: text("db") };
        calls::drop_store(S, 9), DropStore { session, store: StoreId(9) };
        calls::acquire_shard(S, raw, true), AcquireShard { session, shard, takeover: true };
        calls::set_root(S, raw, 5, b"blob"), SetRoot { session, shard, epoch, root: blob() };
        calls::submit_job(S, raw, 5, 2, jobs::ECHO, b"x"),
            SubmitJob { session, shard, epoch, attempt: 2, kind: job_kind::ECHO, arguments: Rest(b"x".to_vec()) };
        calls::get_statistics(S), GetStatistics { session };
        calls::list_tenants(S, "t"), ListTenants { session, after: text("t") };
    }
    let numbers: Vec<u16> = Procedure::ALL.iter().map(|procedure| *procedure as u16).collect();
    assert_eq!(numbers, calls::PROCEDURES);
    assert_eq!((jobs::GATHER, jobs::SEARCH), (job_kind::GATHER, job_kind::SEARCH));
}

#[test]
fn replies_are_as_the_node_writes_them() {
    let key = forebay_fabric::AccessKey::new(3, 1 << 100);
    let granted = GrantedExtent { extent: ExtentId(4), rights: forebay_fabric::Rights::ALL, key };
    let read = calls::ExtentsGranted::of(&replies::ExtentsGranted { extents: vec![granted] }.encode()).unwrap();
    assert_eq!(read.extents, [Granted { extent: 4, rights: 7, key: Key { index: 3, secret: 1 << 100 } }]);
    let page = StorePage { stores: vec![StoreEntry { store: StoreId(2), name: text("db") }], more: true };
    let read = calls::StorePage::of(&page.encode()).unwrap();
    assert_eq!((read.stores, read.more), (vec![(2, "db".to_owned())], true));
    let opened = replies::StoreOpened { store: StoreId(8), config: Blob::new(*b"c").unwrap() }.encode();
    assert_eq!(calls::StoreOpened::of(&opened).unwrap(), calls::StoreOpened { store: 8, config: b"c".to_vec() });
    assert!(calls::StoreOpened::of(&opened[..opened.len() - 1]).is_none());
    assert!(calls::StoreOpened::of(&[&opened[..], &[0]].concat()).is_none());
    assert!(calls::Done::of(&replies::Done {}.encode()).is_some());
    // Fields with the values 1, 2, 3 and so on, so a field in the wrong place shows.
    let numbers = (1..=24u64).flat_map(u64::to_le_bytes);
    let figures: Vec<u8> = [1, 1, b't', 9, 0, 0, 0].into_iter().chain(numbers).collect();
    let door = DoorFigures { admitted: 1, refused: 2, shown_out: 3, late: 4, crowded: 5, withdrawn: 6 };
    let figures = TenantFigures::decode(&figures).unwrap();
    let read =
        calls::TenantPage::of(&TenantPage { tenants: vec![figures.clone()], more: false, door }.encode()).unwrap();
    let [tenant] = &read.tenants[..] else { panic!("{read:?}") };
    assert_eq!((&tenant.name[..], tenant.weight, tenant.busy_us), ("t", 9, 24));
    assert_eq!((tenant.endpoints, tenant.most_endpoints), (5, 6));
    assert_eq!((figures.endpoints, figures.most_endpoints), (5, 6));
    assert_eq!((read.more, read.admitted, read.withdrawn), (false, 1, 6));
}

#[test]
fn arguments_of_jobs_are_as_the_node_reads_them() {
    let range = Range { extent: 4, offset: 64, length: 1 << 40 };
    let known = ExtentRange { extent: ExtentId(4), offset: 64, length: 1 << 40 };
    assert_eq!(jobs::gather(&[range, range]), gather::encode(&[known, known]));
    let job = SearchJob::decode(&jobs::search(300, b"key", 4096)).unwrap();
    let block = SearchedBlock { table: 0, block: BlockAddress { offset: 0, length: 4096 } };
    assert_eq!(job.tables, [SearchedTable { image: SearchPlace { extent: 300, offset: 0 }, segments: Vec::new() }]);
    let [SearchedKey { user_key, number, blocks }] = &job.keys[..] else { panic!("{job:?}") };
    assert_eq!((&user_key[..], *number, &blocks[..]), (&b"key"[..], forebay_base::SequenceNumber::MAX, &[block][..]));
}
