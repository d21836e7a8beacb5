-- How providers write that there is no value, in lower case and without blanks around it. Null, Nan, Nil and None are names of
-- people, companies and places, so names have a list of their own. The staging tables have the lists as columns, `nothing` and
-- `no_name`, and pass one of them on as `spellings`.
CREATE MACRO null_spellings() AS array('', 'null', 'none', 'nil', 'nan', 'n/a', 'undefined');
CREATE MACRO no_name_spellings() AS array('', 'n/a', 'undefined');

-- The same lists as conditions. A property of HubSpot has no name of somebody where it is an address, a number or a stage.
CREATE MACRO is_nothing(text) AS text IN ('', 'null', 'none', 'nil', 'nan', 'n/a', 'undefined');
CREATE MACRO is_no_value_of(property, text) AS
    text IN ('', 'n/a', 'undefined')
    OR (
        text IN ('null', 'none', 'nil', 'nan')
        AND property IN ('email', 'phone', 'mobilephone', 'domain', 'lifecyclestage', 'hs_lead_status')
    );

CREATE MACRO blank_signs() AS ' \t\r\n';

CREATE MACRO is_null_text(text, spellings) AS array_contains(spellings, lower(text));
CREATE MACRO unless_null(text, spellings) AS IF(is_null_text(text, spellings), NULL, text);

-- A text without blanks around it, or null: as it is written, and in lower case.
CREATE MACRO clean_text(text, spellings, blanks) AS unless_null(trim(BOTH blanks FROM text), spellings);
CREATE MACRO clean_lower(text, spellings, blanks) AS
    IF(is_null_text(trim(BOTH blanks FROM text), spellings), NULL, lower(trim(BOTH blanks FROM text)));
