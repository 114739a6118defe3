//! Cells of a grid over longitude and latitude, and distances between places.

/// Limits of longitude, in degrees.
pub(super) const LONGITUDES: (f64, f64) = (-180.0, 180.0);
/// Limits of latitude: those of the Mercator projection as a square.
pub(super) const LATITUDES: (f64, f64) = (-85.051_128_78, 85.051_128_78);
/// How often the finest grid halves both directions.
pub(super) const FINEST: u32 = 26;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;

/// Longitude and latitude, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Place {
    /// Whether the place is on the grid.
    pub(super) fn is_valid(self) -> bool {
        (LONGITUDES.0..=LONGITUDES.1).contains(&self.longitude) && (LATITUDES.0..=LATITUDES.1).contains(&self.latitude)
    }

    /// The place in the middle of the cell of a score.
    pub(super) fn of_score(score: f64) -> Self {
        let cell = Cell::of_bits(word_of(score), FINEST);
        let (longitudes, latitudes) = cell.bounds();
        let middle = |(from, to): (f64, f64)| (from + to) / 2.0;
        Self {
            longitude: middle(longitudes).clamp(LONGITUDES.0, LONGITUDES.1),
            latitude: middle(latitudes).clamp(LATITUDES.0, LATITUDES.1),
        }
    }

    /// Returns the place's score.
    pub(super) fn score(self) -> f64 {
        Cell::around(self, FINEST).first_score()
    }

    /// The distance on a sphere, in metres.
    pub(super) fn distance_m(self, other: Self) -> f64 {
        let (from, to) = (self.latitude.to_radians_exactly(), other.latitude.to_radians_exactly());
        let turn = other.longitude.to_radians_exactly() - self.longitude.to_radians_exactly();
        let (u, v) = (((to - from) / 2.0).sin(), (turn / 2.0).sin());
        2.0 * EARTH_RADIUS_M * (u * u + from.cos() * to.cos() * v * v).sqrt().asin()
    }

    /// Returns the place's geohash: the eleven letters by which other systems know it. Their grid has all latitudes. The
    /// last letter is more precise than the score, so it is always the first of the alphabet.
    pub(super) fn letters(self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::at(self, FINEST, LONGITUDES, (-90.0, 90.0)).bits();
        let letter = |place: u32| {
            let index = if place == 10 { 0 } else { (bits >> (47 - 5 * place) & 31) as usize };
            char::from(ALPHABET.get(index).copied().unwrap_or(b'0'))
        };
        (0..11).map(letter).collect()
    }
}

/// The way in which Redis converts degrees, whose rounding shows in distances.
pub(super) trait Degrees {
    fn to_radians_exactly(self) -> f64;
}

impl Degrees for f64 {
    fn to_radians_exactly(self) -> f64 {
        self * (std::f64::consts::PI / 180.0)
    }
}

/// How many degrees a distance is on a great circle.
pub(super) fn degrees_of_m(distance_m: f64) -> f64 {
    distance_m / EARTH_RADIUS_M / (std::f64::consts::PI / 180.0)
}

/// A cell of a grid that halves both directions `steps` times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    x: u64,
    y: u64,
    pub(super) steps: u32,
}

impl Cell {
    /// The cell in which a place is.
    pub(super) fn around(place: Place, steps: u32) -> Self {
        Self::at(place, steps, LONGITUDES, LATITUDES)
    }

    fn at(place: Place, steps: u32, longitudes: (f64, f64), latitudes: (f64, f64)) -> Self {
        let index = |degrees: f64, (from, to): (f64, f64)| ((degrees - from) / (to - from) * cells(steps)) as u64;
        Self { x: index(place.longitude, longitudes), y: index(place.latitude, latitudes), steps }
    }

    fn of_bits(bits: u64, steps: u32) -> Self {
        Self { x: gathered(bits >> 1), y: gathered(bits), steps }
    }

    /// Both indexes with their bits interleaved; latitude has the lowest one.
    fn bits(self) -> u64 {
        spread(self.x) << 1 | spread(self.y)
    }

    /// Returns the cell this many cells to the east and to the north; the grid has no edges.
    pub(super) fn beside(self, east: i64, north: i64) -> Self {
        let moved = |index: u64, by: i64| match by {
            0 => index,
            _ => index.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        Self { x: moved(self.x, east), y: moved(self.y, north), ..self }
    }

    /// The limits of longitude and latitude.
    pub(super) fn bounds(self) -> ((f64, f64), (f64, f64)) {
        let bounds = |index: u64, (from, to): (f64, f64)| {
            let degrees = |index: u64| from + index as f64 / cells(self.steps) * (to - from);
            (degrees(index), degrees(index + 1))
        };
        (bounds(self.x, LONGITUDES), bounds(self.y, LATITUDES))
    }

    /// The smallest score of its places.
    pub(super) fn first_score(self) -> f64 {
        (self.bits() << (2 * (FINEST - self.steps))) as f64
    }

    /// The smallest score beyond those of its places.
    pub(super) fn end_score(self) -> f64 {
        ((self.bits() + 1) << (2 * (FINEST - self.steps))) as f64
    }
}

/// A score as a word. A score that is not a place, for example a negative one, wraps around. A score too large for a
/// word becomes what the processors that Redis is built for make of it.
fn word_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    match score {
        _ if score >= 2.0 * HALF => 0,
        _ if score >= HALF => score as u64,
        _ if score >= -HALF => score as i64 as u64,
        _ => 1 << 63,
    }
}

fn cells(steps: u32) -> f64 {
    (1_u64 << steps) as f64
}

/// Puts the lower 32 bits at even places.
fn spread(bits: u64) -> u64 {
    [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, EVEN),
    ]
    .into_iter()
    .fold(bits & 0xffff_ffff, |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Takes the bits at even places.
fn gathered(bits: u64) -> u64 {
    [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0xffff_ffff),
    ]
    .into_iter()
    .fold(bits & EVEN, |bits, (shift, mask)| (bits | bits >> shift) & mask)
}

const EVEN: u64 = 0x5555_5555_5555_5555;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_places_have_their_scores_and_letters() {
        let palermo = Place { longitude: 13.361_389, latitude: 38.115_556 };
        let catania = Place { longitude: 15.087_269, latitude: 37.502_669 };
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(catania.score(), 3_479_447_370_796_909.0);
        let (palermo, catania) = (Place::of_score(palermo.score()), Place::of_score(catania.score()));
        assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
        assert_eq!((palermo.letters(), catania.letters()), ("sqc8b49rny0".into(), "sqdtr74hyu0".into()));
    }

    proptest! {
        #[test]
        fn a_place_is_in_its_cell(longitude in -180.0..180.0, latitude in -85.0..85.0, steps in 1..=FINEST) {
            let cell = Cell::around(Place { longitude, latitude }, steps);
            let (longitudes, latitudes) = cell.bounds();
            prop_assert!(longitudes.0 <= longitude && longitude <= longitudes.1);
            prop_assert!(latitudes.0 <= latitude && latitude <= latitudes.1);
            prop_assert_eq!(Cell::of_bits(cell.bits(), steps), cell);
            prop_assert_eq!(cell.beside(1, -1).beside(-1, 1), cell);
        }
    }
}
