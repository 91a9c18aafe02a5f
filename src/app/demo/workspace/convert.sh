#!/bin/sh
# Prints the degrees Fahrenheit for whole degrees Celsius.
echo $(( $1 * 9 / 5 + 23 ))
