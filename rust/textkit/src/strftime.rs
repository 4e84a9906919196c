//! Python's `datetime.strftime` in the C locale, for a time the caller hands over (nothing here reads a clock).

/// Mirrors `tk_time`, which has the fields of `struct tm`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BrokenDownTime {
    pub second: i32,
    pub minute: i32,
    pub hour: i32,
    pub day: i32,
    pub month: i32,
    pub year: i32,
    pub weekday: i32,
    pub yearday: i32,
}

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// One padded number: `flag` is glibc's `-` (no padding), `_` (spaces) or `0`.
fn number(value: i64, width: usize, pad: char, flag: Option<char>) -> String {
    match flag {
        Some('-') => value.to_string(),
        Some('_') => format!("{value:>width$}"),
        Some('0') => format!("{value:0>width$}"),
        _ if pad == ' ' => format!("{value:>width$}"),
        _ => format!("{value:0>width$}"),
    }
}

/// ISO 8601 year and week of a date.
fn iso_week(time: &BrokenDownTime) -> (i64, i64) {
    let year = i64::from(time.year) + 1900;
    let weekday = (i64::from(time.weekday) + 6) % 7; // Monday = 0
    let week = (i64::from(time.yearday) - weekday + 10) / 7;
    let weeks_in = |y: i64| {
        let ends_on = |y: i64| (y + y / 4 - y / 100 + y / 400).rem_euclid(7);
        if ends_on(y) == 4 || ends_on(y - 1) == 3 {
            53
        } else {
            52
        }
    };
    if week < 1 {
        (year - 1, weeks_in(year - 1))
    } else if week > weeks_in(year) {
        (year + 1, 1)
    } else {
        (year, week)
    }
}

pub fn format(pattern: &str, time: &BrokenDownTime) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let flag = chars.next_if(|f| matches!(f, '-' | '_' | '0' | '^' | '#'));
        let Some(directive) = chars.next() else {
            out.push('%');
            out.extend(flag);
            break;
        };
        match field(directive, flag, time) {
            Some(text) if flag == Some('^') => out.push_str(&text.to_uppercase()),
            Some(text) => out.push_str(&text),
            None => {
                // As glibc: an unknown directive stands for itself.
                out.push('%');
                out.extend(flag);
                out.push(directive);
            }
        }
    }
    out
}

fn field(directive: char, flag: Option<char>, time: &BrokenDownTime) -> Option<String> {
    let year = i64::from(time.year) + 1900;
    let hour12 = i64::from((time.hour + 11) % 12 + 1);
    let weekday = i64::from(time.weekday);
    let yearday = i64::from(time.yearday);
    let two = |value: i32| number(i64::from(value), 2, '0', flag);
    let day_name = DAYS[time.weekday.rem_euclid(7) as usize];
    let month_name = MONTHS[time.month.rem_euclid(12) as usize];
    Some(match directive {
        'a' => day_name[..3].to_string(),
        'A' => day_name.to_string(),
        'b' | 'h' => month_name[..3].to_string(),
        'B' => month_name.to_string(),
        'c' => format("%a %b %e %H:%M:%S %Y", time),
        'C' => number(year / 100, 2, '0', flag),
        'd' => two(time.day),
        'D' | 'x' => format("%m/%d/%y", time),
        'e' => number(i64::from(time.day), 2, ' ', flag),
        'f' => "000000".to_string(),
        'F' => format("%Y-%m-%d", time),
        'g' => number(iso_week(time).0 % 100, 2, '0', flag),
        'G' => iso_week(time).0.to_string(),
        'H' => two(time.hour),
        'I' => number(hour12, 2, '0', flag),
        'j' => number(yearday + 1, 3, '0', flag),
        'k' => number(i64::from(time.hour), 2, ' ', flag),
        'l' => number(hour12, 2, ' ', flag),
        'm' => two(time.month + 1),
        'M' => two(time.minute),
        'n' => "\n".to_string(),
        'p' => if time.hour < 12 { "AM" } else { "PM" }.to_string(),
        'P' => if time.hour < 12 { "am" } else { "pm" }.to_string(),
        'r' => format("%I:%M:%S %p", time),
        'R' => format("%H:%M", time),
        'S' => two(time.second),
        't' => "\t".to_string(),
        'T' | 'X' => format("%H:%M:%S", time),
        'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
        'U' => number((yearday + 7 - weekday) / 7, 2, '0', flag),
        'V' => number(iso_week(time).1, 2, '0', flag),
        'w' => weekday.to_string(),
        'W' => number((yearday + 7 - (weekday + 6) % 7) / 7, 2, '0', flag),
        'y' => number(year.rem_euclid(100), 2, '0', flag),
        'Y' => year.to_string(),
        // A datetime without a time zone prints nothing here.
        'z' | 'Z' => String::new(),
        '%' => "%".to_string(),
        _ => return None,
    })
}
