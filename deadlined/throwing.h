/* How a compiled coroutine throws an error into what it awaits. Included by what mypyc generates; see setup.py.

   mypyc calls throw(type, value, traceback), which Python deprecates since 3.12. Where warnings are errors, an interpreted
   coroutine would get a DeprecationWarning in the place of its cancellation, and the cancellation would be lost. */

/* CPy_YieldFromErrorHandle, but for that. Return 0 with what the awaited object yields, 1 with what it returns, both in
   `outcome`, and 2 if it raises. */
static int deadlined_throw_into(PyObject *awaited, PyObject **outcome)
{
    PyObject *error = CPy_ExcState()->exc_value;
    PyObject *throw;

    if (PyErr_GivenExceptionMatches(error, PyExc_GeneratorExit))
        return CPy_YieldFromErrorHandle(awaited, outcome);
    throw = PyObject_GetAttr(awaited, mypyc_interned_str.throw_);
    if (throw == NULL) {
        /* an iterator that takes no errors: mypyc raises it here */
        PyErr_Clear();
        return CPy_YieldFromErrorHandle(awaited, outcome);
    }
    Py_INCREF(error);
    *outcome = PyObject_CallOneArg(throw, error);
    Py_DECREF(error);
    Py_DECREF(throw);
    if (*outcome != NULL)
        return 0;
    *outcome = CPy_FetchStopIterationValue();
    return *outcome != NULL ? 1 : 2;
}
