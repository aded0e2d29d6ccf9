//! The planner's errors as exceptions of JavaScript.

use annulus_plan::Refusal;
use js_sys::{Error, Reflect};
use wasm_bindgen::JsValue;

/// An `Error` named `PlanError` with the planner's message and, where they are known, `step`, `op` and `field`.
#[must_use]
pub fn exception(refusal: &Refusal) -> JsValue {
    let error = Error::new(&refusal.message);
    error.set_name("PlanError");
    let set = |name: &str, value: JsValue| {
        // Setting a property of an object that was made one line above cannot fail.
        let _ = Reflect::set(&error, &name.into(), &value);
    };
    set("step", refusal.step.map_or(JsValue::NULL, Into::into));
    set("op", refusal.op.as_deref().map_or(JsValue::NULL, Into::into));
    set("field", refusal.field.as_deref().map_or(JsValue::NULL, Into::into));
    error.into()
}
