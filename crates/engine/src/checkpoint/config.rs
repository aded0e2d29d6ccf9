//! `config.json` and `generation_config.json`: kept as they are, read field by field with errors that name the field.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::LoadError;

/// A JSON object with the name of the file it came from.
///
/// Models read the fields they know, at the type they need; what no model asks for is never looked at. A field whose
/// value is `null` counts as absent, as Python's `config.get` users treat it.
#[derive(Debug, Clone)]
pub struct Config {
    file: PathBuf,
    /// Names of the objects around this one, each with a dot behind it.
    prefix: String,
    fields: Map<String, Value>,
}

/// A type that a field can be read at.
pub trait FromField: Sized {
    /// What the field must be, for errors: "a whole number".
    const EXPECTED: &'static str;

    /// The value, if it is of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromField for usize {
    const EXPECTED: &'static str = "a whole number that is not negative";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl FromField for u32 {
    const EXPECTED: &'static str = "a whole number below 2^32 that is not negative";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl FromField for f64 {
    const EXPECTED: &'static str = "a finite number";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_f64().filter(|value| value.is_finite())
    }
}

impl FromField for f32 {
    const EXPECTED: &'static str = "a finite number";

    #[allow(clippy::cast_possible_truncation, reason = "rounding to float32 is what was asked for")]
    fn from_value(value: &Value) -> Option<Self> {
        f64::from_value(value).map(|value| value as Self).filter(|value| value.is_finite())
    }
}

impl FromField for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromField for String {
    const EXPECTED: &'static str = "a string";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl<T: FromField> FromField for Vec<T> {
    // Saying "a list of T" would need a string built at compile time; the value is shown beside it.
    const EXPECTED: &'static str = "a list of values of one kind";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_value).collect()
    }
}

impl Config {
    /// Reads a file that holds a JSON object.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else.
    pub fn read(file: &Path) -> Result<Self, LoadError> {
        let text = std::fs::read(file).map_err(|source| LoadError::io(file, source))?;
        let value = serde_json::from_slice(&text)
            .map_err(|error| LoadError::damaged(file, format!("is not valid JSON: {error}")))?;
        match value {
            Value::Object(fields) => Ok(Self::new(file, fields)),
            other => Err(LoadError::damaged(file, format!("a JSON object was expected, found {}", kind(&other)))),
        }
    }

    /// A config from fields that came from `file` in another way.
    #[must_use]
    pub fn new(file: &Path, fields: Map<String, Value>) -> Self {
        Self { file: file.to_owned(), prefix: String::new(), fields }
    }

    /// The file that errors name.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The fields as they were read.
    #[must_use]
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A field's value as it was read; `None` when it is absent or `null`.
    #[must_use]
    pub fn value(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// A field that may be absent.
    ///
    /// # Errors
    /// When its value is of another type.
    pub fn optional<T: FromField>(&self, field: &str) -> Result<Option<T>, LoadError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        T::from_value(value)
            .map(Some)
            .ok_or_else(|| self.error(field, format!("must be {}, found {}", T::EXPECTED, shorten(value))))
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// When it is absent, or its value is of another type.
    pub fn required<T: FromField>(&self, field: &str) -> Result<T, LoadError> {
        self.optional(field)?.ok_or_else(|| self.error(field, format!("is missing; it must be {}", T::EXPECTED)))
    }

    /// A count that must be there and be at least 1: layers, heads, widths.
    ///
    /// # Errors
    /// When it is absent, zero, or no whole number.
    pub fn count(&self, field: &str) -> Result<usize, LoadError> {
        match self.required(field)? {
            0 => Err(self.error(field, "must be at least 1, found 0")),
            count => Ok(count),
        }
    }

    /// An object inside this one; `None` when it is absent.
    ///
    /// # Errors
    /// When it is no object.
    pub fn section(&self, field: &str) -> Result<Option<Self>, LoadError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self {
                file: self.file.clone(),
                prefix: format!("{}{field}.", self.prefix),
                fields: fields.clone(),
            })),
            Some(other) => Err(self.error(field, format!("must be an object, found {}", shorten(other)))),
        }
    }

    /// Token ids that may be given as one number, as a list, or not at all: `eos_token_id`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn token_ids(&self, field: &str) -> Result<Vec<u32>, LoadError> {
        let Some(value) = self.value(field) else {
            return Ok(Vec::new());
        };
        u32::from_value(value).map(|id| vec![id]).or_else(|| Vec::from_value(value)).ok_or_else(|| {
            let found = shorten(value);
            self.error(field, format!("must be a token id or a list of them, found {found}"))
        })
    }

    /// An error about a field of this object; `problem` is read after the field's name.
    pub fn error(&self, field: &str, problem: impl Into<String>) -> LoadError {
        LoadError::field(&self.file, format!("{}{field}", self.prefix), problem)
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as an error shows it: whole when it is short.
fn shorten(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        text
    } else {
        format!("{} {}…", kind(value), text.chars().take(40).collect::<String>())
    }
}

/// What `generation_config.json` recommends; each is absent unless the file states it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a generation.
    pub eos_token_ids: Vec<u32>,
    /// Whether to sample at all; `Some(false)` asks for the most likely token each time.
    pub do_sample: Option<bool>,
    /// Divides the logits; not negative.
    pub temperature: Option<f32>,
    /// Keep the most likely tokens whose probabilities add up to this, in (0, 1].
    pub top_p: Option<f32>,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Drop tokens less likely than this share of the most likely one, in [0, 1].
    pub min_p: Option<f32>,
}

impl GenerationConfig {
    /// Reads the fields of a `generation_config.json`.
    ///
    /// # Errors
    /// When a field is of a wrong type or out of its range.
    pub fn from_config(config: &Config) -> Result<Self, LoadError> {
        let checked = |field: &str, range: &str, holds: fn(f32) -> bool| match config.optional::<f32>(field)? {
            Some(value) if !holds(value) => Err(config.error(field, format!("must be {range}, found {value}"))),
            value => Ok(value),
        };
        Ok(Self {
            eos_token_ids: config.token_ids("eos_token_id")?,
            do_sample: config.optional("do_sample")?,
            temperature: checked("temperature", "0 or more", |value| value >= 0.0)?,
            top_p: checked("top_p", "above 0 and at most 1", |value| value > 0.0 && value <= 1.0)?,
            top_k: config.optional("top_k")?,
            min_p: checked("min_p", "from 0 to 1", |value| (0.0..=1.0).contains(&value))?,
        })
    }
}

/// Fields that models read with a default or a bound.
impl Config {
    /// A field with a value to use where it is absent.
    ///
    /// # Errors
    /// When its value is of another type.
    pub fn optional_or<T: FromField>(&self, field: &str, default: T) -> Result<T, LoadError> {
        Ok(self.optional(field)?.unwrap_or(default))
    }

    /// A count of at least 1, with a value to use where it is absent.
    ///
    /// # Errors
    /// When it is zero or no whole number, the default included.
    pub fn count_or(&self, field: &str, default: usize) -> Result<usize, LoadError> {
        match self.optional_or(field, default)? {
            0 => Err(self.error(field, "must be at least 1, found 0")),
            count => Ok(count),
        }
    }

    /// A number above 0 that must be there.
    ///
    /// # Errors
    /// When it is absent, no number, or not above 0.
    pub fn above_zero(&self, field: &str) -> Result<f32, LoadError> {
        match self.required(field)? {
            value if value > 0.0 => Ok(value),
            value => Err(self.error(field, format!("must be above 0, found {value}"))),
        }
    }

    /// An error about something sound that is not supported; `possible` names what could stand there instead.
    pub fn unsupported(&self, what: &str, possible: &str) -> LoadError {
        LoadError::Unsupported { file: self.file.clone(), what: what.to_owned(), possible: possible.to_owned() }
    }
}

/// How a layer's weights are quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantization {
    /// Elements that share a scale and a bias.
    pub group_size: usize,
    /// Bits of one element.
    pub bits: usize,
}

impl Config {
    /// How the weights of a module (`model.layers.0.mlp.up_proj`) are quantized: the entry of its own in `quantization`
    /// where there is one, else the common one; `None` when they are plain.
    ///
    /// # Errors
    /// When an entry is incomplete, or asks for something that does not exist.
    pub fn quantization(&self, module: &str) -> Result<Option<Quantization>, LoadError> {
        let Some(common) = self.quantization_section()? else {
            return Ok(None);
        };
        match common.fields.get(module) {
            None | Some(Value::Bool(true) | Value::Null) => common.quantization_here(&common).map(Some),
            Some(Value::Bool(false)) => Ok(None),
            Some(_) => match common.section(module)? {
                Some(own) => own.quantization_here(&common).map(Some),
                None => Ok(None),
            },
        }
    }

    /// The object that says how weights are quantized, of the whole or of its text model. mlx-lm writes two of the same
    /// content; `quantization_config` alone may also describe the scheme of another library.
    ///
    /// # Errors
    /// When it does.
    pub fn quantization_section(&self) -> Result<Option<Self>, LoadError> {
        match self.own_quantization_section()? {
            Some(section) => Ok(Some(section)),
            None => self.section("text_config")?.map_or(Ok(None), |text| text.own_quantization_section()),
        }
    }

    fn own_quantization_section(&self) -> Result<Option<Self>, LoadError> {
        if let Some(section) = self.section("quantization")? {
            return Ok(Some(section));
        }
        let Some(section) = self.section("quantization_config")? else {
            return Ok(None);
        };
        match section.optional::<String>("quant_method")? {
            None => Ok(Some(section)),
            Some(method) => {
                let possible = "plain weights, and MLX's affine groups as `mlx_lm.convert -q` writes them";
                Err(self.unsupported(&format!("quantization_config of the method {method:?}"), possible))
            }
        }
    }

    /// Reads this object as one entry; what it leaves out is taken from the common one.
    fn quantization_here(&self, common: &Self) -> Result<Quantization, LoadError> {
        let field = |name| {
            if self.value(name).is_some() { self } else { common }
        };
        // An entry of its own without a mode is affine, whatever the common mode is.
        let mode: Option<String> = self.optional("mode")?;
        if let Some(mode) = mode.filter(|mode| mode != "affine") {
            return Err(self.error("mode", format!("must be \"affine\", found {mode:?}")));
        }
        let bits = field("bits").required("bits")?;
        if !matches!(bits, 2 | 3 | 4 | 5 | 6 | 8) {
            let problem = format!("must be 2, 3, 4, 5, 6 or 8, found {bits}");
            return Err(field("bits").error("bits", problem));
        }
        let group_size = field("group_size").required("group_size")?;
        if !matches!(group_size, 32 | 64 | 128) {
            let problem = format!("must be 32, 64 or 128, found {group_size}");
            return Err(field("group_size").error("group_size", problem));
        }
        Ok(Quantization { group_size, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: Value) -> Config {
        match value {
            Value::Object(fields) => Config::new(Path::new("config.json"), fields),
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn fields_are_read_at_their_type() {
        let config = config(json!({
            "layers": 30, "eps": 1e-5, "theta": 10000, "tie": true, "kind": "llama", "none": null, "list": [1, 2],
        }));
        assert_eq!(config.required::<usize>("layers").unwrap(), 30);
        assert_eq!(config.required::<f32>("eps").unwrap(), 1e-5);
        assert_eq!(config.required::<f64>("theta").unwrap(), 10000.0);
        assert!(config.required::<bool>("tie").unwrap());
        assert_eq!(config.required::<String>("kind").unwrap(), "llama");
        assert_eq!(config.required::<Vec<usize>>("list").unwrap(), [1, 2]);
        assert_eq!(config.optional::<usize>("none").unwrap(), None);
        assert_eq!(config.optional::<usize>("absent").unwrap(), None);
    }

    #[test]
    fn errors_name_file_field_and_value() {
        let config = config(json!({
            "heads": 0, "layers": -1, "width": 1.5, "tie": 1, "rope": {"factor": "8"}, "eos": ["a"], "huge": 1e300,
        }));
        let message = |error: LoadError| error.to_string();
        assert_eq!(
            message(config.count("heads").unwrap_err()),
            r#"config.json: field "heads" must be at least 1, found 0"#
        );
        assert_eq!(
            message(config.required::<usize>("layers").unwrap_err()),
            r#"config.json: field "layers" must be a whole number that is not negative, found -1"#
        );
        assert!(message(config.count("width").unwrap_err()).contains("found 1.5"));
        assert!(message(config.count("absent").unwrap_err()).contains("is missing"));
        assert!(message(config.required::<bool>("tie").unwrap_err()).contains("true or false, found 1"));
        assert!(message(config.required::<f32>("huge").unwrap_err()).contains("a finite number"));
        assert!(message(config.token_ids("eos").unwrap_err()).contains("a token id or a list"));
        assert!(message(config.section("heads").unwrap_err()).contains("an object"));
        let rope = config.section("rope").unwrap().unwrap();
        assert_eq!(
            message(rope.required::<f32>("factor").unwrap_err()),
            r#"config.json: field "rope.factor" must be a finite number, found "8""#
        );
    }

    #[test]
    fn layers_override_the_common_quantization() {
        let config = config(json!({"quantization": {
            "group_size": 64, "bits": 4, "mode": "affine",
            "embed": {"group_size": 32, "bits": 8},
            "partial": {"bits": 6},
            "plain": false,
            "same": true,
            "odd": {"bits": 7},
            "foreign": {"bits": 4, "mode": "mxfp4"},
            "narrow": {"group_size": 16},
        }}));
        let quantization = |module| config.quantization(module).unwrap();
        let of = |group_size, bits| Some(Quantization { group_size, bits });
        assert_eq!(quantization("model.layers.0.mlp.up_proj"), of(64, 4));
        assert_eq!(quantization("embed"), of(32, 8));
        assert_eq!(quantization("partial"), of(64, 6));
        assert_eq!(quantization("plain"), None);
        assert_eq!(quantization("same"), of(64, 4));
        let error = |module| config.quantization(module).unwrap_err().to_string();
        assert!(error("odd").contains(r#""quantization.odd.bits" must be 2, 3, 4"#));
        assert!(error("foreign").contains(r#"must be "affine", found "mxfp4""#));
        assert!(error("narrow").contains(r#""quantization.narrow.group_size" must be 32, 64 or 128, found 16"#));
    }

    #[test]
    fn quantization_is_found_where_libraries_write_it() {
        let groups = json!({"group_size": 32, "bits": 3});
        let of = |value| config(value).quantization("up").unwrap();
        let expected = Some(Quantization { group_size: 32, bits: 3 });
        assert_eq!(of(json!({"quantization": groups, "quantization_config": {"quant_method": "x"}})), expected);
        assert_eq!(of(json!({"quantization_config": groups})), expected);
        assert_eq!(of(json!({"text_config": {"quantization_config": groups}})), expected);
        assert_eq!(of(json!({"text_config": {}})), None);
        let foreign = config(json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}));
        let error = foreign.quantization("up").unwrap_err().to_string();
        assert!(error.contains(r#""gptq" is not supported"#) && error.contains("affine"), "{error}");
    }

    #[test]
    fn an_entry_without_a_mode_is_affine() {
        let config = config(json!({"quantization": {
            "group_size": 32, "bits": 4, "mode": "mxfp4", "router": {"group_size": 64, "bits": 8},
        }}));
        assert_eq!(config.quantization("router").unwrap(), Some(Quantization { group_size: 64, bits: 8 }));
        assert!(config.quantization("up").unwrap_err().to_string().contains("mxfp4"));
    }

    #[test]
    fn generation_config_is_checked() {
        let read = |value| GenerationConfig::from_config(&config(value));
        let full = read(json!({
            "eos_token_id": [2, 7], "temperature": 0.6, "top_p": 0.9, "top_k": 50, "min_p": 0.05, "do_sample": true,
        }))
        .unwrap();
        assert_eq!(full.eos_token_ids, [2, 7]);
        assert_eq!((full.temperature, full.top_p), (Some(0.6), Some(0.9)));
        assert_eq!((full.top_k, full.min_p, full.do_sample), (Some(50), Some(0.05), Some(true)));
        assert_eq!(read(json!({"eos_token_id": 2})).unwrap().eos_token_ids, [2]);
        assert_eq!(read(json!({})).unwrap(), GenerationConfig::default());
        for wrong in [json!({"temperature": -1}), json!({"top_p": 0}), json!({"min_p": 2}), json!({"top_k": -1})] {
            read(wrong).unwrap_err();
        }
    }
}
