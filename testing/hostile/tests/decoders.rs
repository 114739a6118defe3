//! A short, deterministic run over the inputs of the fuzzers of `fuzz/`: the corpus, and random changes of it.

use forebay_env::Random;
use forebay_hostile::decoders;
use std::path::PathBuf;

/// Changes a few bytes, cuts, doubles or inserts.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.word() as u8),
            2 => {
                let piece = bytes[at..].to_vec();
                bytes.extend(piece);
                bytes.truncate(2048);
            }
            _ if at < bytes.len() => {
                let interesting = [0, 1, 2, 127, 128, 129, 255, random.word() as u8];
                bytes[at] = interesting[random.below(8) as usize];
            }
            _ => {}
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn decoders_take_anything() {
    for (target, decode) in decoders::ALL {
        let corpus = corpus(target);
        assert!(corpus.len() >= 4, "the corpus of {target}");
        corpus.iter().for_each(|bytes| decode(bytes));
        let mut random = Random::seeded(19);
        for _ in 0..20_000 {
            let mut bytes = corpus[random.below(corpus.len() as u64) as usize].clone();
            change(&mut bytes, &mut random);
            decode(&bytes);
        }
    }
}
