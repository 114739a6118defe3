//! Circles and boxes, and the cells that cover them.

use super::grid::{Cell, Degrees, FINEST, Place, degrees_of_m};

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extent {
    /// Everything within a radius.
    Circle(f64),
    /// Everything in a box of this width and height around the centre.
    Box(f64, f64),
}

/// An extent around a centre. Lengths are in the client's unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) centre: Place,
    pub(super) extent: Extent,
    /// Metres of the unit.
    pub(super) unit_m: f64,
}

/// Half of the equator in the Mercator projection, in metres.
const HALF_WORLD_M: f64 = 20_037_726.37;

impl Shape {
    /// Returns the distance of a place from the centre in metres, if the place is within the shape.
    pub(super) fn distance_m(&self, place: Place) -> Option<f64> {
        let distance_m = self.centre.distance_m(place);
        let is_within = match self.extent {
            Extent::Circle(radius) => distance_m <= radius * self.unit_m,
            Extent::Box(width, height) => {
                let same_longitude = Place { latitude: self.centre.latitude, ..place };
                let same_latitude = Place { longitude: self.centre.longitude, ..place };
                place.distance_m(same_latitude) <= width * self.unit_m / 2.0
                    && place.distance_m(same_longitude) <= height * self.unit_m / 2.0
            }
        };
        is_within.then_some(distance_m)
    }

    /// Half of its width and of its height, in metres.
    fn halves_m(&self) -> (f64, f64) {
        match self.extent {
            Extent::Circle(radius) => (self.unit_m * radius, self.unit_m * radius),
            Extent::Box(width, height) => (self.unit_m * (width / 2.0), self.unit_m * (height / 2.0)),
        }
    }

    /// Returns the shape's limits in degrees of longitude and of latitude.
    fn bounds(&self) -> ((f64, f64), (f64, f64)) {
        let (width_m, height_m) = self.halves_m();
        let Place { longitude, latitude } = self.centre;
        let rise = degrees_of_m(height_m);
        // A width spans the most degrees on the side towards the pole.
        let widest = if latitude < 0.0 { latitude - rise } else { latitude + rise };
        let turn = degrees_of_m(width_m / widest.to_radians_exactly().cos());
        ((longitude - turn, longitude + turn), (latitude - rise, latitude + rise))
    }

    /// Returns how fine a grid may be so that nine cells cover the shape.
    fn steps(&self) -> u32 {
        let mut radius_m = match self.extent {
            Extent::Circle(radius) => radius * self.unit_m,
            Extent::Box(width, height) => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt() * self.unit_m
            }
        };
        if radius_m == 0.0 {
            return FINEST;
        }
        let mut steps = 1_u32;
        while radius_m < HALF_WORLD_M {
            radius_m *= 2.0;
            steps += 1;
        }
        // Cells are narrower towards the poles.
        let narrower = [66.0, 80.0].into_iter().filter(|&limit| self.centre.latitude.abs() > limit).count() as u32;
        steps.saturating_sub(2 + narrower).clamp(1, FINEST)
    }

    /// Returns the cells that cover the shape: the centre's first, then those beside it.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let (longitudes, latitudes) = self.bounds();
        let mut cell = Cell::around(self.centre, self.steps());
        let is_covered = |cell: Cell| {
            let of = |east, north| cell.beside(east, north).bounds();
            of(0, 1).1.1 >= latitudes.1
                && of(0, -1).1.0 <= latitudes.0
                && of(1, 0).0.1 >= longitudes.1
                && of(-1, 0).0.0 <= longitudes.0
        };
        if cell.steps > 1 && !is_covered(cell) {
            cell = Cell::around(self.centre, cell.steps - 1);
        }
        let own = cell.bounds();
        let is_needed = |(east, north): &(i64, i64)| {
            cell.steps < 2
                || !((*north < 0 && own.1.0 < latitudes.0)
                    || (*north > 0 && own.1.1 > latitudes.1)
                    || (*east < 0 && own.0.0 < longitudes.0)
                    || (*east > 0 && own.0.1 > longitudes.1))
        };
        let beside = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut cells = vec![cell];
        for (east, north) in beside.into_iter().filter(is_needed) {
            let next = cell.beside(east, north);
            // A coarse grid has fewer than nine.
            if !cells.contains(&next) {
                cells.push(next);
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Poles and the line where longitudes begin are left out: there Redis's nine cells do not cover everything.
        #[test]
        fn what_is_within_is_in_a_cell(
            longitude in -120.0..120.0, latitude in -60.0..60.0, east in -20.0..20.0, north in -20.0..20.0, radius in 0.0..2000.0
        ) {
            let centre = Place { longitude, latitude };
            let place = Place { longitude: longitude + east, latitude: latitude + north };
            let shape = Shape { centre, extent: Extent::Circle(radius), unit_m: 1000.0 };
            let scores = |cell: &Cell| (cell.first_score()..cell.end_score()).contains(&place.score());
            if shape.distance_m(place).is_some() {
                prop_assert!(shape.cells().iter().any(scores));
            }
        }
    }
}
