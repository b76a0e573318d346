//! Positions on the earth as numbers. Numbers of near positions are mostly near each other.
//!
//! ```text
//!   longitude, latitude --26 bits each, interleaved--> 52 bits: the score of a member
//!   a search --cells that cover it--> ranges of scores --distance of each member--> result
//! ```
//!
//! Numbers, distances and geohashes equal those of Redis, so its sorted sets can be used here.
//!
//! The cells of a search cover all positions that it may find.

const BITS: u32 = 26;
const LONGITUDE_MAX: f64 = 180.0;
/// Maximum latitude of the usual world map (EPSG:3857).
const LATITUDE_MAX: f64 = 85.051_128_78;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Maximum number of cells in each direction that cover a search.
const CELLS_MAX: f64 = 3.0;

/// A position in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeoPosition {
    /// From west to east, -180 to 180.
    pub longitude: f64,
    /// From south to north, about -85 to 85.
    pub latitude: f64,
}

/// The area of a search. Lengths are in metres.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A circle of this radius.
    Circle(f64),
    /// A box of this width and height.
    Box(f64, f64),
}

impl GeoPosition {
    /// Returns `None` if the position is not on the map.
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_on_map = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_on_map.then_some(GeoPosition { longitude, latitude })
    }

    /// The number of its cell, on a map up to this latitude.
    fn cell(self, latitude_max: f64) -> u64 {
        let part = |degrees: f64, max: f64| {
            let cells = (1_u64 << BITS) as f64;
            ((degrees + max) / (2.0 * max) * cells).min(cells - 1.0) as u64
        };
        spread(part(self.latitude, latitude_max)) | spread(part(self.longitude, LONGITUDE_MAX)) << 1
    }

    /// Its score.
    pub fn score(self) -> f64 {
        self.cell(LATITUDE_MAX) as f64
    }

    /// The middle of the cell of a score.
    pub fn of_score(score: f64) -> Self {
        let cell = score.max(0.0) as u64;
        // Rounded like Redis, so that both show the same digits.
        let edge = |part: u64, max: f64| part as f64 / (1_u64 << BITS) as f64 * (2.0 * max) - max;
        let middle = |part: u64, max: f64| ((edge(part, max) + edge(part + 1, max)) / 2.0).clamp(-max, max);
        GeoPosition {
            longitude: middle(gather(cell >> 1), LONGITUDE_MAX),
            latitude: middle(gather(cell), LATITUDE_MAX),
        }
    }

    /// The geohash, eleven letters.
    pub fn geohash(self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let cell = self.cell(90.0);
        // The bits suffice for ten and a half letters. The last letter carries no information.
        let letter = |at: u32| if at < 10 { cell >> (2 * BITS - 5 * (at + 1)) & 31 } else { 0 };
        (0..11).map(|at| char::from(LETTERS[letter(at) as usize])).collect()
    }

    /// The great-circle distance in metres (haversine formula).
    pub fn metres_to(self, other: GeoPosition) -> f64 {
        let half_sine = |from: f64, to: f64| ((to.to_radians() - from.to_radians()) / 2.0).sin();
        let (up, along) =
            (half_sine(self.latitude, other.latitude), half_sine(self.longitude, other.longitude));
        if along == 0.0 {
            return EARTH_RADIUS_M * (other.latitude.to_radians() - self.latitude.to_radians()).abs();
        }
        let cosines = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        2.0 * EARTH_RADIUS_M * (up * up + cosines * along * along).sqrt().asin()
    }
}

impl Shape {
    /// Distance in metres from the centre, if the position is in the area around it.
    pub fn finds(self, centre: GeoPosition, place: GeoPosition) -> Option<f64> {
        let metres = centre.metres_to(place);
        let is_in = match self {
            Shape::Circle(radius) => metres <= radius,
            Shape::Box(width, height) => {
                let along = GeoPosition { longitude: centre.longitude, ..place }.metres_to(place);
                let up = centre.metres_to(GeoPosition { longitude: centre.longitude, ..place });
                along <= width / 2.0 && up <= height / 2.0
            }
        };
        is_in.then_some(metres)
    }

    /// Sorted ranges of scores (start, end) that hold everything in the area around a centre.
    pub fn scores(self, centre: GeoPosition) -> Vec<(f64, f64)> {
        let (up, along) = match self {
            Shape::Circle(radius) => (radius, radius),
            Shape::Box(width, height) => (height / 2.0, width / 2.0),
        };
        // Slightly more, because the numbers are rounded.
        let degrees = |metres: f64| (metres / EARTH_RADIUS_M).to_degrees() * 1.000_1 + 1e-6;
        let (south, north) = (centre.latitude - degrees(up), centre.latitude + degrees(up));
        // Meridians converge towards the poles. This is the largest distance in degrees, at the end nearest
        // to a pole.
        let shrink = south.abs().max(north.abs()).min(90.0).to_radians().cos();
        let half_sine = (degrees(along).min(180.0).to_radians() / 2.0).sin() / shrink.max(1e-9);
        let apart = if half_sine < 1.0 { 2.0 * half_sine.asin().to_degrees() + 1e-6 } else { 180.0 };
        let (mut west, mut east) = (centre.longitude - apart, centre.longitude + apart);
        if apart >= 180.0 {
            (west, east) = (-LONGITUDE_MAX, LONGITUDE_MAX);
        }
        let wide = (east - west) / (2.0 * LONGITUDE_MAX);
        let high = (north - south) / (2.0 * LATITUDE_MAX);
        let bits = (CELLS_MAX / wide.max(high)).log2().floor().clamp(0.0, f64::from(BITS)) as u32;
        let line = |degrees: f64, max: f64| ((degrees + max) / (2.0 * max) * (1_u64 << bits) as f64).floor();
        let last = ((1_u64 << bits) - 1) as f64;
        let rows = line(south, LATITUDE_MAX).clamp(0.0, last) as u64
            ..=line(north, LATITUDE_MAX).clamp(0.0, last) as u64;
        let columns = line(west, LONGITUDE_MAX) as i64..=line(east, LONGITUDE_MAX) as i64;
        let size = 1_u64 << (2 * (BITS - bits));
        let mut cells: Vec<u64> = rows
            .flat_map(|row| {
                // The first column follows the last.
                columns
                    .clone()
                    .map(move |column| spread(row) | spread(column.rem_euclid(1 << bits) as u64) << 1)
            })
            .collect();
        cells.sort_unstable();
        cells.dedup();
        let mut ranges: Vec<(f64, f64)> = Vec::new();
        for cell in cells {
            let (from, to) = ((cell * size) as f64, ((cell + 1) * size) as f64);
            match ranges.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => ranges.push((from, to)),
            }
        }
        ranges
    }
}

/// Inserts a zero above each of the lower 32 bits.
fn spread(part: u64) -> u64 {
    let mut bits = part & 0xffff_ffff;
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Extracts every other bit, starting with the lowest.
fn gather(cell: u64) -> u64 {
    let mut bits = cell & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(longitude: f64, latitude: f64) -> GeoPosition {
        GeoPosition::new(longitude, latitude).unwrap()
    }

    #[test]
    fn numbers_are_those_of_redis() {
        let palermo = place(13.361389, 38.115556);
        let catania = place(15.087269, 37.502669);
        assert_eq!((palermo.score(), catania.score()), (3479099956230698.0, 3479447370796909.0));
        assert_eq!(
            format!(
                "{:.4}",
                GeoPosition::of_score(palermo.score()).metres_to(GeoPosition::of_score(catania.score()))
            ),
            "166274.1516"
        );
        assert_eq!(
            (palermo.geohash(), catania.geohash()),
            ("sqc8b49rny0".to_owned(), "sqdtr74hyu0".to_owned())
        );
        assert_eq!((GeoPosition::new(180.1, 0.0), GeoPosition::new(0.0, 86.0)), (None, None));
    }

    #[test]
    fn cells_cover_what_is_found() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut draw = || place(random.f64() * 360.0 - 180.0, (random.f64() * 2.0 - 1.0) * LATITUDE_MAX);
        let places: Vec<_> = (0..2000).map(|_| GeoPosition::of_score(draw().score())).collect();
        let mut found = 0;
        for centre in
            (0..60).map(|_| draw()).chain([place(180.0, 0.0), place(-179.9, 85.0), place(0.0, -85.05)])
        {
            for size in [1e3, 3e5, 1e6, 5e6, 2e7] {
                for shape in
                    [Shape::Circle(size), Shape::Box(size, 2.0 * size), Shape::Box(size, size / 50.0)]
                {
                    let ranges = shape.scores(centre);
                    assert!(ranges.len() <= 40, "{shape:?} {}", ranges.len());
                    for place in places.iter().filter(|place| shape.finds(centre, **place).is_some()) {
                        let score = place.score();
                        found += 1;
                        assert!(
                            ranges.iter().any(|(from, to)| (*from..*to).contains(&score)),
                            "{centre:?} {shape:?} {place:?}"
                        );
                    }
                }
            }
        }
        assert!(found > 10_000, "{found}");
    }
}
